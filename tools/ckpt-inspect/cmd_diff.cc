#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/verbs/comparison.h"
#include "core/base/task_pool.h"
#include "core/checkpoint/no_match.h"
#include "tools/ckpt-inspect/commands.h"
#include "tools/ckpt-inspect/diff_report.h"
#include "tools/ckpt-inspect/health.h"
#include "tools/ckpt-inspect/object_diff.h"
#include "tools/ckpt-inspect/selection.h"
#include "tools/ckpt-inspect/tensor_diff.h"
#include "tools/cli/error_report.h"
#include "tools/cli/reporting.h"

namespace ckpt::inspect {
namespace {

// Keeps the tensors that match, and no settings. Errors: kUsage (nothing does).
Status Select(const std::string& match, Comparison& comparison) {
  if (match.empty()) return OkStatus();
  std::vector<std::string> keys;
  for (const TensorPair& pair : comparison.pairs) keys.push_back(pair.key);
  const auto is_other = [&](const auto& entry) { return !MatchesGlob(entry.key, match); };
  for (SideRest* rest : {&comparison.a, &comparison.b}) {
    for (const TensorAsked& tensor : rest->only) keys.push_back(tensor.key);
    for (const Problem& problem : rest->unreadable) keys.push_back(problem.tensor);
    std::erase_if(rest->only, is_other);
    std::erase_if(rest->unreadable,
                  [&](const Problem& problem) { return !MatchesGlob(problem.tensor, match); });
  }
  std::erase_if(comparison.pairs, is_other);
  if (comparison.run) comparison.run.emplace();
  const bool matches =
      std::ranges::any_of(keys, [&](const std::string& key) { return MatchesGlob(key, match); });
  return matches ? OkStatus() : NoKeyMatches("--match", match, keys);
}

// A damaged block is met by every tensor and object in it, and is told once: without a name then,
// unless it has one reader.
void TellOnce(std::vector<Problem>& problems) {
  RemoveRepeated(problems);
  using Facts = std::tuple<std::string, std::string, std::string, std::string>;
  std::map<Facts, std::size_t> blocks;  // positions in `told`
  std::vector<Problem> told;
  for (Problem& problem : problems) {
    if (problem.kind == ErrorKind::kChecksum) {
      const auto [known, is_new] = blocks.emplace(
          Facts(problem.message, problem.file, problem.expected, problem.actual), told.size());
      if (!is_new) {
        told[known->second].tensor.clear();
        continue;
      }
    }
    told.push_back(std::move(problem));
  }
  problems = std::move(told);
}

// Where nothing could be paired up: why.
void TellWhyNotModels(const Comparison& comparison, const DiffOptions& options, Streams& streams) {
  if (comparison.is_of_models || !comparison.pairs.empty() || options.common.quiet) return;
  for (const auto& [side, rest] : {std::pair('A', &comparison.a), std::pair('B', &comparison.b)}) {
    if (rest->not_a_model.ok()) continue;
    Problem why = rest->not_a_model.first();
    why.severity = Severity::kWarning;
    why.message = fmt::format("{} is not compared as a model: {}", side, why.message);
    cli::PrintProblem(why, streams);
  }
}

// Both sides, and what of them is compared. Keys that are equal are compared as they are stored;
// otherwise what an optimizer keeps in other forms is seen by parameters. A side whose metadata do
// not match their checksums is opened without these.
Result<Comparison> Understand(Storage& storage, const DiffOptions& options, DiffSide& a,
                              DiffSide& b) {
  const CompareOptions compare{.mapping = options.mapping, .assets = options.assets};
  Status not_seen_in_a;
  Status not_seen_in_b;
  if (!HaveSameKeys(*a.opened(), *b.opened())) {
    not_seen_in_a = a.SeeParameters();
    not_seen_in_b = b.SeeParameters();
  }
  Result<Comparison> comparison = CompareCheckpoints(storage, a.opened(), b.opened(), compare);
  if (comparison.ok() && !not_seen_in_a.ok()) comparison->a.not_a_run = std::move(not_seen_in_a);
  if (comparison.ok() && !not_seen_in_b.ok()) comparison->b.not_a_run = std::move(not_seen_in_b);
  if (comparison.ok() || comparison.status().kind() != ErrorKind::kChecksum) return comparison;
  CKPT_RETURN_IF_ERROR(a.Distrust(comparison.status()));
  CKPT_RETURN_IF_ERROR(b.Distrust(OkStatus()));
  return CompareCheckpoints(storage, a.opened(), b.opened(), compare);
}

}  // namespace

Result<ExitCode> RunDiff(Storage& storage, const DiffOptions& options, Streams& streams) {
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<DiffSide> a, DiffSide::Open(storage, options.a));
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<DiffSide> b, DiffSide::Open(storage, options.b));
  CKPT_ASSIGN_OR_RETURN(Comparison comparison, Understand(storage, options, *a, *b));
  CKPT_RETURN_IF_ERROR(Select(options.match, comparison));
  cli::Tell(options.common, "compare",
            comparison.is_of_models
                ? fmt::format("as {}, under {}", comparison.run ? "training runs" : "models",
                              comparison.naming)
                : "as stored",
            streams);
  TellWhyNotModels(comparison, options, streams);

  Differences findings;
  findings.comparison = &comparison;
  findings.index_a = &a->opened()->source->index();
  findings.index_b = &b->opened()->source->index();
  {
    const auto progress = cli::MakeProgress(options.common, streams);
    const TensorDiffOptions tensor_options{
        .tolerance = options.tolerance,
        .memory_budget_bytes = options.common.memory_budget,
        .threads = options.common.threads > 0 ? options.common.threads : DefaultThreads()};
    CKPT_ASSIGN_OR_RETURN(std::vector<TensorDiff> diffs,
                          DiffTensors(*a, *b, comparison.pairs, tensor_options, *progress));
    for (TensorDiff& diff : diffs) {
      findings.num_elements += diff.elements.num_elements;
      if (!diff.is_equal()) findings.different.push_back(std::move(diff));
    }
  }
  if (options.match.empty()) {
    findings.objects = DiffObjects(*a->opened()->source, *b->opened()->source);
    if (comparison.is_of_models) {  // then they are among what is left out
      findings.objects.only_a.clear();
      findings.objects.only_b.clear();
    }
  }
  const auto add = [&](const std::vector<Problem>& problems) {
    findings.problems.insert(findings.problems.end(), problems.begin(), problems.end());
  };
  add(comparison.a.unreadable);
  add(comparison.b.unreadable);
  for (const TensorDiff& diff : findings.different) add(diff.unreadable.problems());
  add(a->problems());
  add(b->problems());
  add(findings.objects.unreadable);
  TellOnce(findings.problems);
  options.common.json ? PrintDifferencesJson(findings, streams)
                      : PrintDifferences(findings, streams);
  return findings.is_equal() ? ExitCode::kDone : ExitCode::kDifferent;
}

}  // namespace ckpt::inspect
