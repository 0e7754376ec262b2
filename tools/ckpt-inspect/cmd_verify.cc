#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/name_list.h"
#include "core/base/quote.h"
#include "core/base/task_pool.h"
#include "core/base/units.h"
#include "core/json/json_writer.h"
#include "tools/ckpt-inspect/commands.h"
#include "tools/ckpt-inspect/finding.h"
#include "tools/ckpt-inspect/health.h"
#include "tools/ckpt-inspect/integrity_check.h"
#include "tools/ckpt-inspect/manifest_check.h"
#include "tools/ckpt-inspect/payload_check.h"
#include "tools/cli/reporting.h"

namespace ckpt::inspect {
namespace {

struct Findings {
  std::uint64_t checked_bytes = 0;
  std::uint64_t unchecked_bytes = 0;  // of items without a checksum, beside others that have one
  Protection protection = Protection::kNone;
  std::vector<Finding> list;
  bool is_repairable = false;

  void AddProblems(const std::vector<Problem>& problems) {
    for (const Problem& problem : problems) list.push_back({problem});
  }
  // Several proofs may cover the same bytes. The strongest one is reported, with its bytes.
  void AddProof(Protection proof, std::uint64_t bytes, std::uint64_t unchecked = 0) {
    if (proof < protection) return;
    protection = proof;
    checked_bytes = std::max(checked_bytes, bytes);
    unchecked_bytes = unchecked;
  }
};

// Checks the side files that prove the bytes of whole files. `index` is null if it could not be
// read.
void AddFileChecks(Storage& storage, const Path& directory, const CheckpointIndex* index,
                   int threads, ProgressSink& progress, Findings& findings) {
  if (auto integrity = CheckIntegrityFile(storage, directory, threads, progress)) {
    findings.AddProblems(integrity->problems);
    findings.AddProof(Protection::kIntegrityJson, integrity->checked_bytes);
  }
  if (auto manifest = CheckManifest(storage, directory, index, threads, progress)) {
    // A manifest that cannot be read was not compared with anything.
    if (manifest->checked_bytes != 0) {
      findings.AddProof(Protection::kManifest, manifest->checked_bytes);
    }
    findings.is_repairable = manifest->is_repairable;
    for (Finding& finding : manifest->findings) findings.list.push_back(std::move(finding));
  }
}

// Several checks may find the same thing. Findings with a place are all different.
void RemoveRepeatedFindings(std::vector<Finding>& findings) {
  std::set<std::tuple<ErrorKind, std::string, std::string, std::string>> seen;
  std::erase_if(findings, [&](const Finding& finding) {
    const Problem& problem = finding.problem;
    return !finding.place &&
           !seen.emplace(problem.kind, problem.message, problem.file, problem.tensor).second;
  });
}

// A lost file is reported with the tensors it held, if the metadata name them. The report of a side
// file about the same file is then dropped. Side files name files relative to `directory`.
void RemoveRetoldLosses(const Path& directory, std::vector<Finding>& findings) {
  std::set<std::string> told;
  for (const Finding& finding : findings) {
    const Problem& problem = finding.problem;
    if (problem.kind == ErrorKind::kMissingFile && !problem.tensor.empty()) {
      told.insert((directory / problem.file).string());  // an absolute name stays as it is
      told.insert(problem.file);
    }
  }
  std::erase_if(findings, [&](const Finding& finding) {
    const Problem& problem = finding.problem;
    return problem.kind == ErrorKind::kMissingFile && problem.tensor.empty() &&
           told.contains((directory / problem.file).string());
  });
}

int Threads(const CommonOptions& common) {
  return common.threads > 0 ? common.threads : DefaultThreads();
}

Findings Verify(Storage& storage, const OpenedCheckpoint& checkpoint, const VerifyOptions& options,
                Streams& streams) {
  const CheckpointSource& source = *checkpoint.source;
  Findings findings;
  const std::vector<Problem> known = MetadataProblems(source);
  findings.AddProblems(known);
  if (options.quick) return findings;
  const int threads = Threads(options.common);
  const auto progress = cli::MakeProgress(options.common, streams);
  const CheckedBytes payload = CheckPayload(source, known, threads, *progress);
  findings.AddProblems(payload.problems);
  findings.AddProof(source.protection(), payload.checked_bytes,
                    payload.read_bytes - payload.checked_bytes);
  AddFileChecks(storage, checkpoint.path, &source.index(), threads, *progress, findings);
  RemoveRepeatedFindings(findings.list);
  RemoveRetoldLosses(checkpoint.path, findings.list);
  return findings;
}

void PrintJson(const Findings& findings, Streams& streams) {
  JsonWriter json(2);
  json.BeginObject();
  json.Key("ok").Bool(!HasErrors(findings.list));
  json.Key("checked_bytes").Int(findings.checked_bytes);
  json.Key("protection").Text(ProtectionName(findings.protection));
  json.Key("repairable").Bool(findings.is_repairable);
  json.Key("not_understood").BeginArray();
  for (const std::string& name : NotUnderstood(findings.list)) json.Text(name);
  json.End();
  AppendFindings(findings.list, json);
  json.End();
  streams.out.Write(json.Take() + "\n");
}

// "1.2 KiB", "1.2 KiB of 4.0 GiB".
std::string DescribeChecked(const Findings& findings) {
  const std::string checked = FormatByteSize(findings.checked_bytes);
  const bool is_all = findings.unchecked_bytes == 0 || findings.protection == Protection::kNone;
  if (is_all) return checked;
  return checked + " of " + FormatByteSize(findings.checked_bytes + findings.unchecked_bytes);
}

void PrintText(const Findings& findings, bool quick, Streams& streams) {
  PrintFindings(findings.list, streams);
  const std::string what =
      quick ? "metadata checked"
            : fmt::format("{} checked, protected by {}", DescribeChecked(findings),
                          ProtectionName(findings.protection));
  const std::vector<std::string> not_understood = NotUnderstood(findings.list);
  std::string verdict = HasDamage(findings.list) ? "damaged" : "ok";
  if (!not_understood.empty()) {
    const std::string names = fmt::format("{} not understood ({})", not_understood.size(),
                                          EscapeControls(NameSome(not_understood)));
    verdict = HasDamage(findings.list) ? verdict + ", " + names : names + ", no damage found";
  }
  streams.out.Write(fmt::format("{}: {}\n", verdict, what));
  if (findings.is_repairable) {
    streams.out.Write(
        "hint: everything can be repaired into a copy: ckpt-inspect repair PATH -o DST\n");
  }
}

ExitCode Report(const Findings& findings, const VerifyOptions& options, Streams& streams) {
  options.common.json ? PrintJson(findings, streams) : PrintText(findings, options.quick, streams);
  if (HasDamage(findings.list)) return ExitCode::kDifferent;
  return HasErrors(findings.list) ? ExitCode::kFailed : ExitCode::kDone;
}

}  // namespace

Result<ExitCode> RunVerify(Storage& storage, const OpenedCheckpoint& checkpoint,
                           const VerifyOptions& options, Streams& streams) {
  return Report(Verify(storage, checkpoint, options, streams), options, streams);
}

Result<ExitCode> RunVerifyUnopened(Storage& storage, const Path& directory, const Status& why,
                                   const VerifyOptions& options, Streams& streams) {
  Findings findings;
  findings.AddProblems(why.problems());
  const auto progress = cli::MakeProgress(options.common, streams);
  // If it cannot be opened, perhaps only the metadata are damaged.
  const Result<OpenedCheckpoint> opened = OpenCheckpoint(storage, directory, {.verify = false});
  AddFileChecks(storage, directory, opened.ok() ? &opened->source->index() : nullptr,
                Threads(options.common), *progress, findings);
  RemoveRepeatedFindings(findings.list);
  return Report(findings, options, streams);
}

}  // namespace ckpt::inspect
