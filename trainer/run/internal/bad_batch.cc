#include "trainer/run/internal/bad_batch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/check.h"
#include "trainer/comm/exchange_values.h"

namespace ckpt::train {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

// What one rank knows, in a form that ranks can exchange.
struct Finding {
  std::int64_t first_sample = kNone;  // of this rank's first micro-batch whose loss is not finite
  std::int64_t micro_batch = kNone;
  std::array<char, 240> tensor = {};  // a parameter whose gradient is not finite
};

Finding FindingOf(const Status& failure, const FailedStep& failed,
                  const trainer::BatchReader& batches, const trainer::RankTrainer& trainer) {
  Finding finding;
  const std::span<const double> losses = trainer.micro_batch_losses();
  const auto bad = std::ranges::find_if(losses, [](double loss) { return !std::isfinite(loss); });
  if (bad != losses.end()) {
    finding.micro_batch = bad - losses.begin();
    finding.first_sample = batches.GlobalSample(failed.consumed_samples, finding.micro_batch, 0);
  }
  const std::string& tensor = failure.first().tensor;
  tensor.copy(finding.tensor.data(), finding.tensor.size() - 1);
  return finding;
}

}  // namespace

Status NameBadBatch(const Status& failure, const FailedStep& failed,
                    const trainer::BatchReader& batches, const trainer::RankTrainer& trainer,
                    trainer::HostGroup& world) {
  CKPT_CHECK(failure.kind() == ErrorKind::kValueMismatch);
  CKPT_ASSIGN_OR_RETURN(
      const std::vector<Finding> all,
      trainer::ExchangeValues(world, FindingOf(failure, failed, batches, trainer)));

  const auto bad = std::ranges::min_element(all, {}, &Finding::first_sample);
  const auto named =
      std::ranges::find_if(all, [](const Finding& finding) { return finding.tensor[0] != '\0'; });
  std::string where;
  if (bad->first_sample != kNone) {
    where = fmt::format("micro-batch {} of rank {}, global samples {} to {}", bad->micro_batch,
                        bad - all.begin(), bad->first_sample,
                        bad->first_sample + trainer.config().micro_batch_size - 1);
  } else {
    where = fmt::format("a batch of global samples {} to {}", failed.consumed_samples,
                        failed.consumed_samples + batches.SamplesOf(1) - 1);
  }
  return Error(ErrorKind::kValueMismatch,
               fmt::format("{} in step {}", failure.first().message, failed.step))
      .Tensor(named == all.end() ? "" : named->tensor.data())
      .Expected("finite numbers")
      .Actual(where)
      .Hint("nothing was saved since; lower lr or look at these samples");
}

}  // namespace ckpt::train
