#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/units.h"
#include "core/exec/task_pool.h"
#include "core/json/json_writer.h"
#include "tools/ckpt-inspect/commands.h"
#include "tools/ckpt-inspect/health.h"
#include "tools/ckpt-inspect/integrity_check.h"
#include "tools/ckpt-inspect/manifest_check.h"
#include "tools/ckpt-inspect/payload_check.h"
#include "tools/ckpt-inspect/problem_list.h"
#include "tools/cli/reporting.h"

namespace ckpt::inspect {
namespace {

struct Findings {
  std::uint64_t checked_bytes = 0;
  Protection protection = Protection::kNone;
  std::vector<Problem> problems;

  // Several proofs may cover the same bytes; the strongest one is named, and its bytes are counted.
  void Add(Protection proof, CheckedBytes checked) {
    for (Problem& problem : checked.problems) problems.push_back(std::move(problem));
    if (proof < protection) return;
    protection = proof;
    checked_bytes = std::max(checked_bytes, checked.checked_bytes);
  }
};

// Side files that prove the bytes of whole files.
void AddFileChecks(Storage& storage, const Path& directory, int threads, ProgressSink& progress,
                   Findings& findings) {
  auto integrity = CheckIntegrityFile(storage, directory, threads, progress);
  if (integrity) findings.Add(Protection::kIntegrityJson, *std::move(integrity));
  auto manifest = CheckManifest(storage, directory, threads, progress);
  if (manifest) findings.Add(Protection::kManifest, *std::move(manifest));
}

Findings Verify(Storage& storage, const OpenedCheckpoint& checkpoint, const VerifyOptions& options,
                Streams& streams) {
  const CheckpointSource& source = *checkpoint.source;
  Findings findings;
  findings.problems = MetadataProblems(source);
  if (options.quick) return findings;
  const CommonOptions& common = options.common;
  const int threads = common.threads > 0 ? common.threads : DefaultThreads();
  const auto progress = cli::MakeProgress(common, "verify", streams);
  findings.Add(source.protection(), CheckPayload(source, threads, *progress));
  const Result<FileStat> stat = storage.Stat(checkpoint.path);
  if (!stat.ok()) {
    // Without it nobody knows what else there is to check.
    for (const Problem& problem : stat.status().problems()) findings.problems.push_back(problem);
  } else if (stat->type == FileType::kDirectory) {
    AddFileChecks(storage, checkpoint.path, threads, *progress, findings);
  }
  RemoveRepeated(findings.problems);
  return findings;
}

void PrintJson(const Findings& findings, Streams& streams) {
  JsonWriter json(2);
  json.BeginObject();
  json.Key("ok").Bool(!HasErrors(findings.problems));
  json.Key("checked_bytes").Int(findings.checked_bytes);
  json.Key("protection").Text(ProtectionName(findings.protection));
  AppendProblemList(findings.problems, json);
  json.End();
  streams.out.Write(json.Take() + "\n");
}

void PrintText(const Findings& findings, bool quick, Streams& streams) {
  PrintProblemList(findings.problems, streams);
  const std::string what =
      quick ? "metadata checked"
            : fmt::format("{} checked, protected by {}", FormatByteSize(findings.checked_bytes),
                          ProtectionName(findings.protection));
  streams.out.Write(fmt::format("{}: {}\n", HasErrors(findings.problems) ? "damaged" : "ok", what));
}

}  // namespace

Result<ExitCode> RunVerify(Storage& storage, const OpenedCheckpoint& checkpoint,
                           const VerifyOptions& options, Streams& streams) {
  const Findings findings = Verify(storage, checkpoint, options, streams);
  options.common.json ? PrintJson(findings, streams) : PrintText(findings, options.quick, streams);
  return HasErrors(findings.problems) ? ExitCode::kDifferent : ExitCode::kDone;
}

}  // namespace ckpt::inspect
