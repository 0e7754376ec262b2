#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/counted.h"
#include "core/base/quote.h"
#include "core/base/task_pool.h"
#include "core/checkpoint/digest.h"
#include "core/checkpoint/no_match.h"
#include "core/json/json_writer.h"
#include "tools/ckpt-inspect/commands.h"
#include "tools/ckpt-inspect/digest_as.h"
#include "tools/ckpt-inspect/health.h"
#include "tools/ckpt-inspect/selection.h"
#include "tools/cli/error_report.h"
#include "tools/cli/reporting.h"

namespace ckpt::inspect {
namespace {

// Digests of the tensors as they are stored. One thread works on each tensor.
Result<std::vector<TensorDigest>> DigestStored(const CheckpointSource& source,
                                               const DigestOptions& options,
                                               ProgressSink& progress) {
  CKPT_RETURN_IF_ERROR(CheckMatchesSome(source.index(), options.match, Among::kTensors));
  const std::vector<const GlobalTensor*> tensors = SelectTensors(source.index(), options.match);
  CKPT_RETURN_IF_ERROR(CheckNothingUnlisted(source.index(), options.match));
  CKPT_RETURN_IF_ERROR(CheckHealthy(source, tensors));
  std::uint64_t total_bytes = 0;
  for (const GlobalTensor* tensor : tensors) total_bytes += LogicalBytes(*tensor);
  progress.OnPhase("digest", total_bytes, tensors.size());
  const int threads = options.common.threads > 0 ? options.common.threads : DefaultThreads();
  const std::uint64_t budget = options.common.memory_budget / static_cast<std::uint64_t>(threads);
  std::vector<TensorDigest> digests(tensors.size());
  std::vector<Status> failures(tensors.size());
  const auto digest = [&](std::size_t i, std::size_t /*worker*/) {
    const GlobalTensor& tensor = *tensors[i];
    Result<std::string> hex = DigestTensor(source, tensor, options.algorithm, budget);
    progress.OnDone(tensor.key, LogicalBytes(tensor));
    // Report errors at the end, so that one run lists everything that is wrong.
    if (!hex.ok()) {
      failures[i] = std::move(hex).status().Tensor(tensor.key);
    } else {
      digests[i] = {tensor.key, tensor.dtype, tensor.shape, *std::move(hex)};
    }
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(RunTasks(tensors.size(), threads, std::stop_token(), digest));
  Status failure;
  for (Status& one : failures) failure.Add(std::move(one));
  if (!failure.ok()) return failure;
  return digests;
}

void PrintJson(const std::vector<TensorDigest>& digests, const std::string& combined,
               std::optional<std::uint64_t> left_out, HashAlgorithm algorithm,
               const std::vector<Problem>& problems, Streams& streams) {
  JsonWriter json(2);
  json.BeginObject();
  json.Key("algorithm").Text(HashName(algorithm));
  json.Key("checkpoint").Text(combined);
  json.Key("tensors").BeginObject();
  for (const TensorDigest& digest : digests) json.Key(digest.key).Text(digest.hex);
  json.End();
  if (left_out) json.Key("left_out").Int(*left_out);
  cli::AppendProblemList(problems, json);
  json.End();
  streams.out.Write(json.Take() + "\n");
}

void PrintText(const std::vector<TensorDigest>& digests, const std::string& combined,
               std::optional<std::uint64_t> left_out, Streams& streams) {
  for (const TensorDigest& digest : digests) {
    streams.out.Write(digest.hex + "  " + EscapeControls(digest.key) + "\n");
  }
  streams.out.Write(combined + "  (checkpoint)\n");
  if (left_out && *left_out > 0) {
    streams.out.Write(fmt::format("{} {} no place in this layout\n",
                                  Counted(*left_out, "entry", "entries"),
                                  *left_out == 1 ? "has" : "have"));
  }
}

// All checkpoints without tensors have the same hash, so it says nothing.
Status NothingToDigest(const OpenedCheckpoint& checkpoint) {
  const CheckpointIndex& index = checkpoint.source->index();
  return Error(ErrorKind::kNotFound, "the checkpoint has no tensors to digest")
      .File(checkpoint.path.string())
      .Actual(Counted(index.objects().size(), "object"))
      .Hint(index.objects().empty() ? "" : "ckpt-inspect meta shows objects");
}

}  // namespace

Result<ExitCode> RunDigest(const ListedCheckpoint& checkpoint, const DigestOptions& options,
                           Streams& streams) {
  std::vector<TensorDigest> digests;
  std::optional<std::uint64_t> left_out;
  std::vector<Problem> problems = checkpoint.problems;
  std::vector<Problem> warnings;
  {
    const auto progress = cli::MakeProgress(options.common, streams);
    if (options.as.empty()) {
      CKPT_ASSIGN_OR_RETURN(digests, DigestStored(*checkpoint.source, options, *progress));
    } else {
      CKPT_ASSIGN_OR_RETURN(ModelDigests model,
                            DigestModelAs(checkpoint, options.as, options.assets, options.algorithm,
                                          options.common, *progress));
      std::vector<std::string> keys;
      for (const TensorDigest& digest : model.tensors) keys.push_back(digest.key);
      std::erase_if(model.tensors, [&](const TensorDigest& digest) {
        return !MatchesGlob(digest.key, options.match);
      });
      if (model.tensors.empty() && !options.match.empty()) {
        return NoKeyMatches("--match", options.match, keys);
      }
      digests = std::move(model.tensors);
      left_out = model.left_out;
      warnings = std::move(model.warnings);
    }
  }
  for (Problem& warning : warnings) {
    if (!options.common.json && !options.common.quiet) cli::PrintProblem(warning, streams);
    problems.push_back(std::move(warning));
  }
  if (digests.empty()) return NothingToDigest(checkpoint);
  const std::string combined = CombineDigests(digests, options.algorithm);
  options.common.json ? PrintJson(digests, combined, left_out, options.algorithm, problems, streams)
                      : PrintText(digests, combined, left_out, streams);
  return ExitCode::kDone;
}

}  // namespace ckpt::inspect
