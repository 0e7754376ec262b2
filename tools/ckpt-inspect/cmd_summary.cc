#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/base/counted.h"
#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/json/json_writer.h"
#include "tools/ckpt-inspect/commands.h"
#include "tools/ckpt-inspect/health.h"
#include "tools/ckpt-inspect/problem_list.h"
#include "tools/ckpt-inspect/selection.h"
#include "tools/ckpt-inspect/topology.h"

namespace ckpt::inspect {
namespace {

struct Totals {
  std::uint64_t bytes = 0;       // sum over the dense tensors
  std::uint64_t parameters = 0;  // elements of the model's tensors
  std::map<std::string_view, std::uint64_t> bytes_by_dtype;
};

Totals AddUp(const CheckpointIndex& index) {
  Totals totals;
  for (const GlobalTensor& tensor : index.tensors()) {
    const Result<std::uint64_t> bytes = CountBytes(tensor.shape, tensor.dtype);
    if (!bytes.ok()) continue;  // listed among the problems
    totals.bytes += *bytes;
    totals.bytes_by_dtype[DTypeName(tensor.dtype)] += *bytes;
    if (IsTrainingState(tensor.key)) continue;
    const std::uint64_t per_element = tensor.dtype == DType::kFloat4E2m1fnX2 ? 2 : 1;
    totals.parameters += per_element * *bytes / ElementBytes(tensor.dtype);
  }
  return totals;
}

void AppendTopology(const Topology& topology, JsonWriter& json) {
  json.Key("topology").BeginObject();
  if (topology.writers) json.Key("writers").Int(*topology.writers);
  if (topology.pipeline_parallel) json.Key("pipeline_parallel").Int(*topology.pipeline_parallel);
  if (topology.tensor_parallel) json.Key("tensor_parallel").Int(*topology.tensor_parallel);
  json.Key("max_chunks").Int(topology.max_chunks);
  json.End();
}

void PrintJson(const ListedCheckpoint& checkpoint, Streams& streams) {
  const CheckpointIndex& index = checkpoint.source->index();
  const Totals totals = AddUp(index);
  JsonWriter json(2);
  json.BeginObject();
  json.Key("format").Text(checkpoint.format->name);
  json.Key("path").Text(checkpoint.path.string());
  json.Key("tensors").Int(index.tensors().size());
  json.Key("chunks").Int(index.chunks().size());
  json.Key("objects").Int(index.objects().size());
  json.Key("files").Int(index.files().size());
  json.Key("bytes").Int(totals.bytes);
  json.Key("parameters").Int(totals.parameters);
  json.Key("dtypes").BeginObject();
  for (const auto& [dtype, bytes] : totals.bytes_by_dtype) json.Key(dtype).Int(bytes);
  json.End();
  json.Key("iteration");
  checkpoint.iteration ? json.Int(*checkpoint.iteration) : json.Null();
  json.Key("release").Bool(checkpoint.is_release);
  AppendTopology(FindTopology(index), json);
  AppendProblemList(checkpoint.problems, json);
  json.End();
  streams.out.Write(json.Take() + "\n");
}

std::string DescribeDtypes(const Totals& totals) {
  std::string text;
  for (const auto& [dtype, bytes] : totals.bytes_by_dtype) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", dtype, FormatByteSize(bytes));
  }
  return text;
}

std::string DescribeTopology(const Topology& topology) {
  std::string text;
  const auto add = [&](std::string_view what, std::optional<std::int64_t> number) {
    if (number) text += Counted(*number, what) + ", ";
  };
  add("writer", topology.writers);
  add("pipeline stage", topology.pipeline_parallel);
  add("tensor-parallel rank", topology.tensor_parallel);
  return text + Counted(topology.max_chunks, "chunk") + " per tensor, at most";
}

void PrintText(const ListedCheckpoint& checkpoint, Streams& streams) {
  const CheckpointIndex& index = checkpoint.source->index();
  const Totals totals = AddUp(index);
  const auto line = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) streams.out.Write(fmt::format("{:<11} {}\n", name, value));
  };
  line("format", std::string(checkpoint.format->name));
  line("path", EscapeControls(checkpoint.path.string()));
  line("iteration", checkpoint.iteration    ? std::to_string(*checkpoint.iteration)
                    : checkpoint.is_release ? "release"
                                            : "");
  line("tensors",
       fmt::format("{} in {}", index.tensors().size(), Counted(index.chunks().size(), "chunk")));
  line("objects", std::to_string(index.objects().size()));
  line("files", std::to_string(index.files().size()));
  line("size", FormatByteSize(totals.bytes));
  line("parameters", std::to_string(totals.parameters));
  line("dtypes", DescribeDtypes(totals));
  line("topology", DescribeTopology(FindTopology(index)));
  PrintProblemList(checkpoint.problems, streams);
}

}  // namespace

Result<ExitCode> RunSummary(const ListedCheckpoint& checkpoint, const SummaryOptions& options,
                            Streams& streams) {
  options.common.json ? PrintJson(checkpoint, streams) : PrintText(checkpoint, streams);
  return LacksFiles(checkpoint.problems) ? ExitCode::kDifferent : ExitCode::kDone;
}

}  // namespace ckpt::inspect
