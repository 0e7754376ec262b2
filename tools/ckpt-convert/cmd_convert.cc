#include "tools/ckpt-convert/cmd_convert.h"

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/counted.h"
#include "core/base/quote.h"
#include "core/base/task_pool.h"
#include "core/base/units.h"
#include "core/io/disk_space.h"
#include "core/io/posix_storage.h"
#include "core/io/staging_name.h"
#include "core/json/json_writer.h"
#include "core/plan/plan_print.h"
#include "tools/cli/error_report.h"
#include "tools/cli/reporting.h"
#include "tools/cli/stop_on_signal.h"

namespace ckpt::cli {
namespace {

// Peak memory of this program in bytes; 0 if the system does not say. getrusage is not used: it
// also counts the memory of the caller before the exec.
std::uint64_t PeakRssBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmHWM:") continue;
    std::uint64_t kib = 0;
    status >> kib;
    return kib * kKiB;
  }
  return 0;
}

// Which tensors the target shows where they lie; the plan has none of these.
std::string PrintLinks(const PreparedConversion& prepared) {
  std::string out = fmt::format(
      "{} in {} {} linked, and nothing is copied\n", FormatByteSize(prepared.target_bytes),
      Counted(prepared.target_tensors, "tensor"), prepared.target_tensors == 1 ? "is" : "are");
  for (const auto& [key, boxes] : prepared.links) {
    out += fmt::format("linked  {}\n", EscapeControls(key));
    for (const LinkedBox& link : boxes) {
      out += fmt::format("          <- {} [{}, +{})  {}\n", EscapeControls(link.file),
                         link.offset_bytes, link.size_bytes, FormatBox(link.box));
    }
  }
  return out;
}

void WriteLinksJson(const PreparedConversion& prepared, JsonWriter& json) {
  json.Key("links").BeginArray();
  for (const auto& [key, boxes] : prepared.links) {
    json.BeginObject().Key("key").Text(key).Key("chunks").BeginArray();
    for (const LinkedBox& link : boxes) {
      json.BeginObject().Key("file").Text(link.file).Key("offset").Int(link.offset_bytes);
      json.Key("length").Int(link.size_bytes);
      json.Key("offsets").Ints(link.box.offsets).Key("sizes").Ints(link.box.sizes).End();
    }
    json.End().End();
  }
  json.End();
}

void WriteDropped(const std::vector<LeftOutEntry>& dropped, JsonWriter& json) {
  json.Key("dropped").BeginArray();
  for (const LeftOutEntry& entry : dropped) {
    json.BeginObject().Key("key").Text(entry.key).Key("bytes").Int(entry.bytes);
    json.Key("why").Text(entry.why).End();
  }
  json.End();
}

ExitCode PrintPlanOnly(const PreparedConversion& prepared, const ConvertCommand& command,
                       Streams& streams) {
  const CheckpointIndex& index = prepared.model.source().index();
  if (!command.common.json) {
    if (command.options.link) streams.out.Write(PrintLinks(prepared));
    streams.out.Write(PrintPlan(prepared.plan, index));
    if (prepared.parity_files != 0) {
      streams.out.Write(fmt::format("parity  {}, one for every {} of those above\n",
                                    Counted(prepared.parity_files, "file"),
                                    command.options.parity_group));
    }
    return ExitCode::kDone;
  }
  JsonWriter json(1);
  json.BeginObject().Key("ok").Bool(true);
  WritePlanJson(prepared.plan, index, json);
  if (command.options.link) WriteLinksJson(prepared, json);
  if (prepared.parity_files != 0) {
    json.Key("parity").BeginObject().Key("group").Int(command.options.parity_group);
    json.Key("files").Int(prepared.parity_files).End();
  }
  WriteDropped(prepared.left_out(), json);
  AppendProblemList(prepared.warnings, json);
  json.End();
  streams.out.Write(json.Take() + "\n");
  return ExitCode::kDone;
}

void TellWarnings(const std::vector<Problem>& warnings, const CommonOptions& common,
                  Streams& streams) {
  if (common.quiet) return;
  for (const Problem& warning : warnings) PrintProblem(warning, streams);
}

void TellDecisions(const PreparedConversion& prepared, const ConvertCommand& command,
                   Streams& streams) {
  const ModelSource& model = prepared.model;
  const CheckpointIndex& index = model.source().index();
  const WritePlan& write = prepared.plan.write;
  const CommonOptions& common = command.common;
  Tell(common, "source",
       fmt::format("{} at {}: {} in {}, {}", model.checkpoint->format->name,
                   model.checkpoint->path.string(), Counted(index.tensors().size(), "tensor"),
                   Counted(index.chunks().size(), "chunk"), Counted(index.files().size(), "file")),
       streams);
  std::string naming = model.match.layout.naming;
  for (const auto& [name, value] : model.match.layout.choices) {
    naming += fmt::format(", {} {}", name, value);
  }
  Tell(common, "model",
       model.family ? fmt::format("family {}, named as {}", model.family->name, naming)
                    : "the tensors as they are stored, under their own keys",
       streams);
  Tell(common, "side files", model.assets.empty() ? "none" : model.assets.string(), streams);
  Tell(common, "target",
       fmt::format("{}: {} in {}, {} and {}", prepared.to.container->container(),
                   Counted(prepared.target_tensors, "tensor"), Counted(write.items.size(), "chunk"),
                   Counted(write.files.size(), "file"), Counted(write.copies.size(), "side file")),
       streams);
  if (write.compression) {
    Tell(common, "compression",
         fmt::format("{}, level {}", write.compression->encoder, write.compression->zstd_level),
         streams);
  }
  TellResources(common, streams);
}

std::string ReportJson(const ConvertReport& report, const ConvertCommand& command, double seconds) {
  const auto digest_or_null = [](JsonWriter& json, const std::string& digest) {
    digest.empty() ? json.Null() : json.Text(digest);
  };
  JsonWriter json(1);
  json.BeginObject().Key("ok").Bool(true);
  json.Key("source").BeginObject();
  json.Key("format").Text(report.source_format);
  json.Key("path").Text(command.options.source.string());
  json.Key("tensors").Int(report.source_tensors).Key("bytes").Int(report.source_bytes).End();
  json.Key("target").BeginObject();
  json.Key("format").Text(report.target_format);
  json.Key("path").Text(command.options.target.string());
  json.Key("tensors").Int(report.target_tensors).Key("bytes").Int(report.target_bytes).End();
  json.Key("seconds").Double(seconds);
  json.Key("bytes_read").Int(report.bytes_read).Key("bytes_written").Int(report.bytes_written);
  if (report.parity_files != 0) {
    json.Key("parity").BeginObject().Key("group").Int(command.options.parity_group);
    json.Key("files").Int(report.parity_files).Key("bytes").Int(report.parity_bytes).End();
  }
  if (report.worker) {
    const WorkerId& worker = *command.options.worker;
    json.Key("worker").BeginObject().Key("number").Int(worker.number);
    json.Key("count").Int(worker.count).Key("tensors").Int(report.worker->tensors);
    json.Key("of_tensors").Int(report.worker->of_tensors).End();
  }
  json.Key("peak_rss").Int(PeakRssBytes());
  json.Key("resumed_tensors").Int(report.resumed_tensors);
  json.Key("cast_overflows").Int(report.cast_overflows);
  json.Key("digest").BeginObject().Key("source");
  digest_or_null(json, report.source_digest);
  json.Key("target");
  digest_or_null(json, report.target_digest);
  json.End();
  WriteDropped(report.dropped, json);
  AppendProblemList(report.warnings, json);
  json.End();
  return json.Take() + "\n";
}

void PrintWorkerSummary(const ConvertReport& report, const WorkerId& worker, double seconds,
                        Streams& streams) {
  streams.out.Write(
      fmt::format("worker {} of {} wrote {} of {}, {} in {:.1f} s, peak memory {}; "
                  "--finalize publishes "
                  "the target when all have\n",
                  worker.number, worker.count, report.worker->tensors,
                  Counted(report.worker->of_tensors, "tensor"),
                  FormatByteSize(report.bytes_written), seconds, FormatByteSize(PeakRssBytes())));
}

// What was asked to be left out is no loss, and is counted apart.
void PrintLeftOut(const std::vector<LeftOutEntry>& dropped, Streams& streams) {
  struct Sum {
    std::uint64_t entries = 0;
    std::uint64_t bytes = 0;
  };
  Sum lost;
  Sum asked;
  for (const LeftOutEntry& entry : dropped) {
    if (entry.is_bookkeeping) continue;
    Sum& sum = entry.why == kLeftOutOnRequest ? asked : lost;
    ++sum.entries;
    sum.bytes += entry.bytes;
  }
  if (asked.entries != 0) {
    streams.out.Write(fmt::format("left out {}, {}, on request\n",
                                  Counted(asked.entries, "entry", "entries"),
                                  FormatByteSize(asked.bytes)));
  }
  if (lost.entries != 0) {
    streams.out.Write(fmt::format("left out {}, {}, that {} no place in the target\n",
                                  Counted(lost.entries, "entry", "entries"),
                                  FormatByteSize(lost.bytes), lost.entries == 1 ? "has" : "have"));
  }
}

void PrintSummary(const ConvertReport& report, bool links, double seconds, Streams& streams) {
  if (links) {
    streams.out.Write(fmt::format("linked {}, {}, in one file; nothing was copied\n",
                                  Counted(report.target_tensors, "tensor"),
                                  FormatByteSize(report.target_bytes)));
  } else {
    const double rate = static_cast<double>(report.target_bytes) / std::max(seconds, 1e-9);
    streams.out.Write(fmt::format("converted {} to {}, {} in {:.1f} s ({}/s), peak memory {}\n",
                                  Counted(report.source_tensors, "tensor"), report.target_tensors,
                                  FormatByteSize(report.target_bytes), seconds,
                                  FormatByteSize(static_cast<std::uint64_t>(rate)),
                                  FormatByteSize(PeakRssBytes())));
  }
  if (!report.source_digest.empty() && report.source_digest == report.target_digest) {
    streams.out.Write(
        fmt::format("verified: the model's digest is {} on both sides\n", report.target_digest));
  }
  if (report.parity_files != 0) {
    streams.out.Write(fmt::format("parity: {}, {}\n", Counted(report.parity_files, "file"),
                                  FormatByteSize(report.parity_bytes)));
  }
  PrintLeftOut(report.dropped, streams);
  if (report.cast_overflows != 0) {
    streams.err.Write(fmt::format(
        "warning: {} finite values became infinite in the narrower type\n", report.cast_overflows));
  }
}

}  // namespace

Result<ExitCode> RunConvert(const ConvertCommand& command, Streams& streams) {
  const auto start = std::chrono::steady_clock::now();
  ConvertOptions options = command.options;
  options.memory_budget_bytes = command.common.memory_budget;
  options.threads = command.common.threads == 0 ? DefaultThreads() : command.common.threads;
  Storage& storage = PosixStorage();
  CKPT_ASSIGN_OR_RETURN(const PreparedConversion prepared, PrepareConversion(storage, options));
  TellDecisions(prepared, command, streams);
  if (command.plan_only) {
    TellWarnings(prepared.warnings, command.common, streams);
    return PrintPlanOnly(prepared, command, streams);
  }

  if (const auto free_bytes = FreeBytes(options.target)) {
    // The files of an earlier run are continued or removed, so their space counts as free.
    const std::uint64_t room = *free_bytes + AllocatedBytes(StagingOf(options.target));
    CKPT_RETURN_IF_ERROR(
        CheckRoom(options.target, prepared.needed_bytes, room)
            .Hint("free space, or choose a target on another disk; ckpt-convert --overwrite keeps "
                  "the old target until the new one is complete"));
  }
  const StopOnSignal signal;
  options.stop = signal.token();
  std::unique_ptr<ProgressSink> progress = MakeProgress(command.common, streams);
  options.progress = progress.get();
  Result<ConvertReport> report = RunConversion(storage, prepared, options);
  progress.reset();  // a bar clears its line before anything else is printed
  if (!report.ok()) return std::move(report).status();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  TellWarnings(report->warnings, command.common, streams);
  if (command.common.json) {
    streams.out.Write(ReportJson(*report, command, elapsed.count()));
  } else if (!command.common.quiet && report->worker) {
    PrintWorkerSummary(*report, *options.worker, elapsed.count(), streams);
  } else if (!command.common.quiet) {
    PrintSummary(*report, options.link, elapsed.count(), streams);
  }
  return ExitCode::kDone;
}

}  // namespace ckpt::cli
