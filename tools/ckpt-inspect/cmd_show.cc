#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/nearest_match.h"
#include "core/base/quote.h"
#include "core/checkpoint/read.h"
#include "core/json/json_writer.h"
#include "tools/ckpt-inspect/commands.h"
#include "tools/ckpt-inspect/health.h"
#include "tools/ckpt-inspect/held_tensors.h"
#include "tools/ckpt-inspect/nested_values.h"
#include "tools/ckpt-inspect/slice.h"
#include "tools/ckpt-inspect/statistics.h"
#include "tools/cli/error_report.h"

namespace ckpt::inspect {
namespace {

// Cuts `box` into boxes in C order, each one interval of its C order, with at most `max_elements`
// elements (but at least one).
void ForEachBlock(const Box& box, std::int64_t max_elements,
                  const std::function<bool(const Box&)>& visit) {
  if (IsEmpty(box)) return;
  const std::size_t ndim = box.sizes.size();
  // The outermost dim that can be cut, so that all dims inside it are read whole.
  std::size_t cut = ndim;
  std::int64_t inner = 1;
  while (cut > 0 && inner <= max_elements / box.sizes[cut - 1]) inner *= box.sizes[--cut];
  Box block = box;
  for (std::size_t dim = 0; dim < cut; ++dim) block.sizes[dim] = 1;
  if (cut == 0) {
    visit(block);
    return;
  }
  const std::size_t last = cut - 1;
  const std::int64_t step = std::max<std::int64_t>(1, max_elements / inner);
  for (;;) {
    const std::int64_t end = box.offsets[last] + box.sizes[last];
    for (block.offsets[last] = box.offsets[last]; block.offsets[last] < end;
         block.offsets[last] += block.sizes[last]) {
      block.sizes[last] = std::min(step, end - block.offsets[last]);
      if (!visit(block)) return;
    }
    std::size_t dim = last;
    while (dim > 0 && ++block.offsets[dim - 1] == box.offsets[dim - 1] + box.sizes[dim - 1]) {
      block.offsets[dim - 1] = box.offsets[dim - 1];
      --dim;
    }
    if (dim == 0) return;
  }
}

// Streams the slice to `sink` in C order.
Status StreamBox(const CheckpointSource& source, const GlobalTensor& tensor, const Box& box,
                 std::uint64_t budget_bytes, const std::function<void(ByteSpan)>& sink) {
  const std::uint64_t element_bytes = ElementBytes(tensor.dtype);
  const std::uint64_t block_bytes = std::max(element_bytes, budget_bytes / 4);
  Gatherer gatherer(block_bytes);
  LocatedChunks chunks(source, budget_bytes / 4);
  TensorReader reader(tensor, gatherer, chunks);
  Bytes buffer;
  Status status;
  ForEachBlock(box, static_cast<std::int64_t>(block_bytes / element_bytes), [&](const Box& block) {
    buffer.resize(NumBytes(block.sizes, tensor.dtype));
    status = reader.Read(block, buffer);
    if (status.ok()) sink(buffer);
    return status.ok();
  });
  return status;
}

// The member "problems" of a document that is written without JsonWriter.
std::string ProblemsMember(const std::vector<Problem>& problems) {
  JsonWriter json;
  json.BeginObject();
  cli::AppendProblemList(problems, json);
  const std::string document = json.End().Take();
  return document.substr(1, document.size() - 2);
}

Status ShowTensor(const ListedCheckpoint& checkpoint, const GlobalTensor& tensor,
                  const ShowOptions& options, Streams& streams) {
  const CheckpointSource& source = *checkpoint.source;
  CKPT_RETURN_IF_ERROR(CheckHealthy(source, {&tensor}));
  Result<Slice> parsed = ParseSlice(options.slice, tensor.shape);
  if (!parsed.ok()) {
    return std::move(parsed).status().File(checkpoint.path.string()).Tensor(tensor.key);
  }
  const Slice slice = *std::move(parsed);
  CKPT_RETURN_IF_ERROR(CheckPrintable(slice.dims));
  const bool is_json = options.common.json;
  // Reads everything twice: the values are too many to keep in memory, and an error must not leave
  // half a document.
  const auto read = [&](const std::function<void(ByteSpan)>& sink) {
    return StreamBox(source, tensor, slice.box, options.common.memory_budget, sink);
  };
  Statistics statistics(tensor.dtype);
  CKPT_RETURN_IF_ERROR(read([&](ByteSpan elements) { statistics.Add(elements); }));

  if (is_json) {
    streams.out.Write(
        fmt::format(R"({{"key": {}, "shape": {}, "dtype": "{}", "offset": {}, "values": )",
                    JsonQuote(tensor.key), FormatDims(tensor.shape), DTypeName(tensor.dtype),
                    FormatDims(slice.box.offsets)));
  } else {
    streams.out.Write(fmt::format("{}  {}{}\n", EscapeControls(tensor.key), DTypeName(tensor.dtype),
                                  FormatDims(tensor.shape)));
    if (!options.slice.empty()) streams.out.Write("at " + FormatBox(slice.box) + "\n");
  }
  NestedValues values(tensor.dtype, slice.dims, is_json ? NestedStyle::kJson : NestedStyle::kPeople,
                      streams.out);
  CKPT_RETURN_IF_ERROR(read([&](ByteSpan elements) { values.Add(elements); }));
  values.Finish();
  streams.out.Write(is_json ? ", \"stats\": " + statistics.Json() + ", " +
                                  ProblemsMember(checkpoint.problems) + "}\n"
                            : "\n" + statistics.Json() + "\n");
  return OkStatus();
}

Status ShowObject(const ListedCheckpoint& checkpoint, const ObjectEntry& object,
                  const ShowOptions& options, Streams& streams) {
  const CheckpointSource& source = *checkpoint.source;
  if (!options.slice.empty()) {
    return Error(ErrorKind::kUsage, "--slice is for tensors; this is an object").Tensor(object.key);
  }
  CKPT_RETURN_IF_ERROR(source.index().CheckDeliverable(object.key));
  CKPT_ASSIGN_OR_RETURN(const RenderedObject rendered, source.ReadObject(object));
  if (!options.common.quiet) {
    for (const Problem& warning : rendered.warnings) cli::PrintProblem(warning, streams);
  }
  if (options.common.json) {
    JsonWriter json(2);
    json.BeginObject();
    json.Key("key").Text(object.key).Key("type").Text(rendered.type);
    json.Key("value").Raw(rendered.json);
    AppendHeld(rendered.held, json);
    std::vector<Problem> problems = checkpoint.problems;
    problems.insert(problems.end(), rendered.warnings.begin(), rendered.warnings.end());
    cli::AppendProblemList(problems, json);
    json.End();
    streams.out.Write(json.Take() + "\n");
  } else {
    streams.out.Write(EscapeControls(object.key) + "  " + rendered.type + "\n" + rendered.json +
                      "\n" + DescribeHeld(rendered.held));
  }
  return OkStatus();
}

Status NoSuchKey(const ListedCheckpoint& checkpoint, const std::string& key) {
  const CheckpointIndex& index = checkpoint.source->index();
  std::vector<std::string> keys;
  for (const GlobalTensor& tensor : index.tensors()) keys.push_back(tensor.key);
  for (const ObjectEntry& object : index.objects()) keys.push_back(object.key);
  const std::string nearest = NearestMatch(key, keys);
  return Error(ErrorKind::kNotFound, "no tensor or object of this name")
      .File(checkpoint.path.string())
      .Tensor(key)
      .Hint(nearest.empty() ? "" : "did you mean " + Quote(nearest) + "?");
}

}  // namespace

Result<ExitCode> RunShow(const ListedCheckpoint& checkpoint, const ShowOptions& options,
                         Streams& streams) {
  const CheckpointIndex& index = checkpoint.source->index();
  if (const GlobalTensor* tensor = index.FindTensor(options.key)) {
    CKPT_RETURN_IF_ERROR(ShowTensor(checkpoint, *tensor, options, streams));
  } else if (const ObjectEntry* object = index.FindObject(options.key)) {
    CKPT_RETURN_IF_ERROR(ShowObject(checkpoint, *object, options, streams));
  } else {
    CKPT_RETURN_IF_ERROR(index.CheckDeliverable(options.key));
    return NoSuchKey(checkpoint, options.key);
  }
  return ExitCode::kDone;
}

}  // namespace ckpt::inspect
