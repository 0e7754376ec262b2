#include "tools/ckpt-train/experiment/internal/verdict.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"

namespace ckpt::train {
namespace {

double RelativeDifference(double value, double reference) {
  if (value == reference) return 0;
  return std::abs(value - reference) / std::abs(reference);
}

// Collects what differs, under the name of the case.
class Judge {
 public:
  explicit Judge(const ReshardCase& resumed) : name_(fmt::format("({})", resumed.name)) {}

  void Fail(std::string_view what, std::string expected, std::string actual) {
    failures_.Add(Error(ErrorKind::kValueMismatch, fmt::format("{} {}", name_, what))
                      .Expected(std::move(expected))
                      .Actual(std::move(actual)));
  }
  template <typename T>
  void ExpectEqual(std::string_view what, const T& expected, const T& actual) {
    if (expected != actual) {
      Fail(what, fmt::format("{}", expected), fmt::format("{}", actual));
    }
  }
  void ExpectWithin(std::string_view what, double tolerance, double deviation) {
    if (!(deviation <= tolerance)) {
      Fail(what, fmt::format("at most {:g}", tolerance), fmt::format("{:.2e}", deviation));
    }
  }

  Status Take() { return std::move(failures_); }

 private:
  const std::string name_;
  Status failures_;
};

const Station& StationAt(const Leg& leg, std::int64_t iteration) {
  const auto found = std::ranges::find(
      leg.stations, iteration, [](const Station& station) { return station.progress.iteration; });
  CKPT_CHECK(found != leg.stations.end());
  return *found;
}

std::vector<Deviation> Deviations(const Leg& resumed, const Leg& whole) {
  std::vector<Deviation> deviations;
  for (const StepMetrics& step : resumed.steps) {
    const auto reference = std::ranges::find(whole.steps, step.step, &StepMetrics::step);
    CKPT_CHECK(reference != whole.steps.end());
    deviations.push_back({.step = step.step,
                          .loss = RelativeDifference(step.loss, reference->loss),
                          .grad_norm = RelativeDifference(step.grad_norm, reference->grad_norm)});
  }
  return deviations;
}

std::int64_t CountDifferent(const std::vector<float>& a, const std::vector<float>& b) {
  CKPT_CHECK(a.size() == b.size());
  std::int64_t different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different += a[i] == b[i] ? 0 : 1;
  return different;
}

void CheckLoaded(const Leg& resumed, const Station& saved, const Leg& whole, Judge& judge) {
  const Station& loaded = resumed.stations.front();
  judge.ExpectEqual("the state after loading is not the one that was saved", saved.digest,
                    loaded.digest);
  judge.ExpectEqual("router biases differ after loading", std::int64_t{0},
                    CountDifferent(loaded.expert_biases, saved.expert_biases));
  judge.ExpectEqual("resumes at another step", saved.progress.iteration, loaded.progress.iteration);
  judge.ExpectEqual("resumes at another sample", saved.progress.consumed_samples,
                    loaded.progress.consumed_samples);
  judge.ExpectEqual("the seed of random numbers differs", whole.seed, resumed.seed);
}

// The samples that the uninterrupted run read for the same steps, each once.
void CheckSamples(const Leg& resumed, const Leg& whole, Judge& judge) {
  const std::int64_t begin = resumed.stations.front().progress.consumed_samples;
  const std::int64_t end = resumed.stations.back().progress.consumed_samples;
  std::vector<ReadSample> expected;
  for (const ReadSample& sample : whole.samples) {
    if (sample.global_sample >= begin && sample.global_sample < end) expected.push_back(sample);
  }
  if (resumed.samples == expected) return;
  judge.Fail("reads other samples than the uninterrupted run",
             fmt::format("{} from {} to {}, each once", expected.size(), begin, end - 1),
             fmt::format("{} samples, or others in them", resumed.samples.size()));
}

void CheckTail(const Tolerance& tolerance, const ResumeVerdict& verdict, Judge& judge) {
  if (tolerance.bit_equal) {
    judge.ExpectEqual("loss and gradient norm are not bit-equal in all steps",
                      static_cast<std::int64_t>(verdict.deviations.size()), verdict.equal_steps);
    if (!verdict.is_end_equal) judge.Fail("the state differs after the last step", "equal", "not");
    return;
  }
  judge.ExpectWithin("the loss of the first step deviates", tolerance.first_loss,
                     verdict.deviations.front().loss);
  judge.ExpectWithin("the gradient norm of the first step deviates", tolerance.first_norm,
                     verdict.deviations.front().grad_norm);
  judge.ExpectWithin("the loss deviates",
                     verdict.moved_biases == 0 ? tolerance.tail_loss : tolerance.turned_loss,
                     verdict.largest_loss);
}

}  // namespace

ResumeVerdict JudgeResume(const ReshardCase& resumed_case, const Leg& resumed, const Station& saved,
                          const Leg& whole) {
  CKPT_CHECK(!resumed.steps.empty());
  const Station& end = resumed.stations.back();
  const Station& reference_end = StationAt(whole, end.progress.iteration);
  ResumeVerdict verdict;
  verdict.deviations = Deviations(resumed, whole);
  for (const Deviation& deviation : verdict.deviations) {
    verdict.largest_loss = std::max(verdict.largest_loss, deviation.loss);
    verdict.largest_norm = std::max(verdict.largest_norm, deviation.grad_norm);
    verdict.equal_steps += deviation.loss == 0 && deviation.grad_norm == 0 ? 1 : 0;
  }
  verdict.is_loaded_equal = resumed.stations.front().digest == saved.digest;
  verdict.is_end_equal = end.digest == reference_end.digest;
  verdict.moved_biases = CountDifferent(end.expert_biases, reference_end.expert_biases);

  Judge judge(resumed_case);
  CheckLoaded(resumed, saved, whole, judge);
  CheckSamples(resumed, whole, judge);
  CheckTail(resumed_case.tolerance, verdict, judge);
  verdict.failures = judge.Take();
  return verdict;
}

}  // namespace ckpt::train
