#include "core/plan/plan_print.h"

#include <map>

#include <fmt/format.h>

#include "core/base/counted.h"
#include "core/base/quote.h"
#include "core/base/units.h"

namespace ckpt {
namespace {

// Source keys of a recipe with the number of nests each, in key order.
std::map<std::string, std::size_t> SourcesOf(const TensorRecipe& recipe,
                                             const CheckpointIndex& source) {
  std::map<std::string, std::size_t> sources;
  for (const layout::Nest& nest : recipe.nests) {
    ++sources[nest.is_zero_fill() ? "(zeros)" : source.tensors()[nest.source].key];
  }
  return sources;
}

std::uint64_t PayloadBytes(const WritePlan& plan) {
  std::uint64_t bytes = 0;
  for (const WriteItem& item : plan.items) bytes += item.payload_bytes;
  return bytes;
}

}  // namespace

std::string PrintPlan(const ConversionPlan& plan, const CheckpointIndex& source) {
  std::string out = fmt::format("{} in {} and {}\n", FormatByteSize(PayloadBytes(plan.write)),
                                Counted(plan.write.tensors.size(), "tensor"),
                                Counted(plan.write.files.size(), "file"));
  const bool is_compressed = plan.write.compression.has_value();
  if (is_compressed) {
    out +=
        fmt::format("items are compressed: zstd level {}; the sizes below are before compression\n",
                    plan.write.compression->zstd_level);
  }
  for (const WriteFile& file : plan.write.files) {
    out += is_compressed ? fmt::format("file    {}\n", EscapeControls(file.name))
                         : fmt::format("file    {}  {}\n", EscapeControls(file.name),
                                       FormatByteSize(file.size_bytes));
  }
  for (const WriteCopy& copy : plan.write.copies) {
    out += fmt::format("copy    {}\n", EscapeControls(copy.name));
  }
  std::size_t item = 0;
  for (std::size_t t = 0; t < plan.write.tensors.size(); ++t) {
    const TargetTensor& tensor = plan.write.tensors[t];
    out += fmt::format("tensor  {}  {} {}", EscapeControls(tensor.key), DTypeName(tensor.dtype),
                       FormatDims(tensor.shape));
    if (plan.recipes[t].source_dtype != tensor.dtype) {
      out += fmt::format(" from {}", DTypeName(plan.recipes[t].source_dtype));
    }
    out += '\n';
    for (const auto& [key, pieces] : SourcesOf(plan.recipes[t], source)) {
      out += fmt::format("          <- {}{}\n", EscapeControls(key),
                         pieces == 1 ? "" : fmt::format("  in {} pieces", pieces));
    }
    for (; item < plan.write.items.size() && plan.write.items[item].tensor == t; ++item) {
      const WriteItem& chunk = plan.write.items[item];
      const std::string file = EscapeControls(plan.write.files[chunk.file].name);
      out += is_compressed
                 ? fmt::format("          -> {} {}  {}\n", file, chunk.size_bytes,
                               FormatBox(chunk.box))
                 : fmt::format("          -> {} [{}, +{})  {}\n", file, chunk.offset_bytes,
                               chunk.size_bytes, FormatBox(chunk.box));
    }
  }
  return out;
}

void WritePlanJson(const ConversionPlan& plan, const CheckpointIndex& source, JsonWriter& json) {
  json.Key("bytes").Int(PayloadBytes(plan.write));
  if (const auto& compression = plan.write.compression) {
    json.Key("compression").Text(fmt::format("zstd:{}", compression->zstd_level));
  }
  json.Key("files").BeginArray();
  for (const WriteFile& file : plan.write.files) {
    json.BeginObject().Key("name").Text(file.name);
    // For compressed files only the names are known.
    if (!plan.write.compression) json.Key("bytes").Int(file.size_bytes);
    json.End();
  }
  json.End();
  json.Key("copies").BeginArray();
  for (const WriteCopy& copy : plan.write.copies) json.Text(copy.name);
  json.End();
  json.Key("tensors").BeginArray();
  std::size_t item = 0;
  for (std::size_t t = 0; t < plan.write.tensors.size(); ++t) {
    const TargetTensor& tensor = plan.write.tensors[t];
    json.BeginObject().Key("key").Text(tensor.key).Key("shape").Ints(tensor.shape);
    json.Key("dtype").Text(DTypeName(tensor.dtype));
    json.Key("source_dtype").Text(DTypeName(plan.recipes[t].source_dtype));
    json.Key("sources").BeginArray();
    for (const auto& [key, pieces] : SourcesOf(plan.recipes[t], source)) {
      json.BeginObject().Key("key").Text(key).Key("pieces").Int(pieces).End();
    }
    json.End();
    json.Key("chunks").BeginArray();
    for (; item < plan.write.items.size() && plan.write.items[item].tensor == t; ++item) {
      const WriteItem& chunk = plan.write.items[item];
      json.BeginObject().Key("file").Text(plan.write.files[chunk.file].name);
      if (!plan.write.compression) json.Key("offset").Int(chunk.offset_bytes);
      json.Key("length").Int(chunk.size_bytes);
      json.Key("offsets").Ints(chunk.box.offsets).Key("sizes").Ints(chunk.box.sizes).End();
    }
    json.End().End();
  }
  json.End();
}

}  // namespace ckpt
