#include "tools/ckpt-inspect/diff_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/quote.h"
#include "core/json/json_writer.h"
#include "core/layout/affine.h"
#include "core/layout/value.h"
#include "tools/ckpt-inspect/element.h"
#include "tools/ckpt-inspect/problem_list.h"
#include "tools/cli/error_report.h"

namespace ckpt::inspect {
namespace {

using cli::Streams;

constexpr std::size_t kMaxObjectBytes = 120;  // of a value, for people

// Those that are compared, each once, however often it is stored.
std::size_t NumTensors(const Comparison& comparison) {
  return static_cast<std::size_t>(std::ranges::count(comparison.pairs, 0U, &TensorPair::copy));
}

// The index of the element at `position` in C order.
Dims IndexAt(DimsView shape, std::int64_t position) {
  Dims index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = position % shape[d];
    position /= shape[d];
  }
  return index;
}

// An element where a side stores it.
struct StoredElement {
  std::string key;
  Dims index;
  std::string file;
};

// The file with an element, or with copy number `copy` of it if there are so many.
std::string FileWith(const CheckpointIndex& side, const GlobalTensor& tensor, const Dims& index,
                     std::size_t copy) {
  const Box element{.offsets = index, .sizes = Dims(index.size(), 1)};
  std::vector<FileId> files;
  for (const Chunk& chunk : side.chunks(tensor)) {
    if (Intersect(side.box(chunk), element)) files.push_back(chunk.file);
  }
  if (files.empty()) return {};
  return side.files()[files[copy < files.size() ? copy : 0]];
}

// Nothing if it is no stored element but a zero.
std::optional<StoredElement> StoredAt(const CheckpointIndex& side, const TensorAsked& asked,
                                      const Dims& index, std::size_t copy) {
  const Box element{.offsets = index, .sizes = Dims(index.size(), 1)};
  for (const layout::Nest& nest : asked.recipe.nests) {
    if (nest.is_zero_fill()) continue;
    const std::vector<layout::Nest> part = layout::ClipToTarget(nest, element);
    if (part.empty()) continue;
    const GlobalTensor& tensor = side.tensors()[nest.source];
    const Dims& at = part.front().source_origin;
    return StoredElement{.key = tensor.key, .index = at, .file = FileWith(side, tensor, at, copy)};
  }
  return std::nullopt;
}

std::string ValueText(DType dtype, const ElementBits& bits) {
  std::string text;
  AppendElement(dtype, bits.data(), text);
  return text;
}

// "0x3f800000": the element as one little-endian number.
std::string BitsText(DType dtype, const ElementBits& bits) {
  std::string text = "0x";
  for (std::uint64_t i = ElementBytes(dtype); i-- > 0;) {
    text += fmt::format("{:02x}", std::to_integer<unsigned>(bits[i]));
  }
  return text;
}

// Integers differ by an integer, up to all of 64 bits.
std::string DifferenceText(const TensorDiff& diff) {
  const auto is_whole = [](DType dtype) { return IsInteger(dtype) || dtype == DType::kBool; };
  const bool is_integer = is_whole(diff.pair->a.dtype) && is_whole(diff.pair->b.dtype);
  std::string text;
  AppendNumber(is_integer ? DType::kUint64 : DType::kFloat64, *diff.elements.max_abs, text);
  return text;
}

std::string_view WhatDiffers(const TensorDiff& diff) {
  if (!diff.has_same_shape) return "shape";
  if (!diff.unreadable.ok()) return "unreadable";
  return diff.has_same_dtype ? "values" : "dtype";
}

void AppendStored(std::string_view name, const std::optional<StoredElement>& stored,
                  JsonWriter& json) {
  json.Key(name);
  if (!stored) {
    json.Null();
    return;
  }
  json.BeginObject().Key("key").Text(stored->key).Key("index").Ints(stored->index);
  json.Key("file").Text(stored->file).End();
}

void AppendDifferent(const TensorDiff& diff, const Differences& findings, JsonWriter& json) {
  const TensorAsked& a = diff.pair->a;
  const TensorAsked& b = diff.pair->b;
  const ElementDiff& elements = diff.elements;
  json.BeginObject();
  json.Key("key").Text(diff.pair->Name());
  json.Key("what").Text(WhatDiffers(diff));
  json.Key("max_abs");
  elements.max_abs ? json.Raw(DifferenceText(diff)) : json.Null();
  json.Key("first_index");
  elements.first ? json.Ints(IndexAt(a.shape, elements.first->position)) : json.Null();
  json.Key("a");
  elements.first ? json.Raw(ValueText(a.dtype, elements.first->a)) : json.Null();
  json.Key("b");
  elements.first ? json.Raw(ValueText(b.dtype, elements.first->b)) : json.Null();
  if (elements.first) {
    json.Key("bits_a").Text(BitsText(a.dtype, elements.first->a));
    json.Key("bits_b").Text(BitsText(b.dtype, elements.first->b));
    const Dims first = IndexAt(a.shape, elements.first->position);
    const std::size_t copy = diff.pair->copy;
    AppendStored("stored_a", StoredAt(*findings.index_a, a, first, copy), json);
    AppendStored("stored_b", StoredAt(*findings.index_b, b, first, copy), json);
  }
  json.Key("elements").Int(elements.num_elements);
  json.Key("differing").Int(elements.num_differing);
  json.Key("nan").Int(elements.num_nan);
  json.Key("dtype_a").Text(DTypeName(a.dtype)).Key("dtype_b").Text(DTypeName(b.dtype));
  json.Key("shape_a").Ints(a.shape).Key("shape_b").Ints(b.shape);
  json.End();
}

void AppendValue(const layout::Value& value, JsonWriter& json) {
  if (const bool* const boolean = value.AsBool()) {
    json.Bool(*boolean);
  } else if (const std::int64_t* const integer = value.AsInt()) {
    json.Int(*integer);
  } else if (const double* const number = value.AsFloat()) {
    std::string text;
    AppendNumber(DType::kFloat64, *number, text);
    json.Raw(text);
  } else if (const std::string* const text = value.AsText()) {
    json.Text(*text);
  } else if (const layout::Value::List* const list = value.AsList()) {
    json.BeginArray();
    for (const layout::Value& item : *list) AppendValue(item, json);
    json.End();
  } else {
    json.Null();
  }
}

void AppendKeys(std::string_view name, const std::vector<TensorAsked>& tensors, JsonWriter& json) {
  json.Key(name).BeginArray();
  for (const TensorAsked& tensor : tensors) json.Text(tensor.key);
  json.End();
}

void AppendLeftOut(std::string_view name, const std::vector<LeftOutEntry>& entries,
                   JsonWriter& json) {
  json.Key(name).BeginArray();
  for (const LeftOutEntry& entry : entries) {
    json.BeginObject().Key("key").Text(entry.key).Key("bytes").Int(entry.bytes);
    json.Key("why").Text(entry.why).End();
  }
  json.End();
}

void AppendObjects(const ObjectDiff& objects, JsonWriter& json, Streams& streams) {
  const auto append = [&](std::string_view name, const std::vector<std::string>& keys) {
    json.Key(name).BeginArray();
    for (const std::string& key : keys) json.Text(key);
    json.End();
  };
  json.Key("objects").BeginObject();
  append("only_a", objects.only_a);
  append("only_b", objects.only_b);
  json.Key("different").BeginArray();
  for (const DifferingObject& object : objects.different) {
    json.BeginObject().Key("key").Text(object.key);
    json.Key("a").Raw(object.a).Key("b").Raw(object.b).End();
    streams.out.Write(json.TakeSoFar());
  }
  json.End().End();
}

void AppendSettings(const RunComparison& run, JsonWriter& json) {
  const auto append = [&](std::string_view name, const std::vector<std::string>& names) {
    json.Key(name).BeginArray();
    for (const std::string& setting : names) json.Text(setting);
    json.End();
  };
  json.Key("settings").BeginObject();
  append("compared", run.compared);
  append("only_a", run.only_a);
  append("only_b", run.only_b);
  json.Key("different").BeginArray();
  for (const DifferentSetting& setting : run.different) {
    json.BeginObject().Key("name").Text(setting.name);
    json.Key("a");
    AppendValue(setting.a, json);
    json.Key("b");
    AppendValue(setting.b, json);
    if (setting.num_tensors != 0) {
      json.Key("tensors").Int(setting.num_tensors);
      json.Key("first_tensor").Text(setting.first_tensor);
    }
    json.End();
  }
  json.End().End();
}

// What takes no part, by the reason, one line each: "random number generators: 5 entries of A".
void AddLeftOut(const Comparison& comparison, std::vector<std::string>& lines) {
  std::map<std::string, std::vector<std::string>> sides;  // by the reason
  for (const auto& [side, rest] : {std::pair('A', &comparison.a), std::pair('B', &comparison.b)}) {
    std::map<std::string_view, std::vector<const LeftOutEntry*>> entries;
    for (const LeftOutEntry& entry : rest->left_out) entries[entry.why].push_back(&entry);
    for (const auto& [why, of_side] : entries) {
      sides[std::string(why)].push_back(
          of_side.size() == 1 ? fmt::format("{} of {}", of_side.front()->key, side)
                              : fmt::format("{} entries of {}", of_side.size(), side));
    }
  }
  for (const auto& [why, of_sides] : sides) {
    lines.push_back(fmt::format("{}: {}", why, fmt::join(of_sides, ", ")));
  }
}

// What was not found out of the buffers of optimizers.
void AddBuffers(const Comparison& comparison, std::vector<std::string>& lines) {
  for (const auto& [side, rest] : {std::pair('A', &comparison.a), std::pair('B', &comparison.b)}) {
    if (rest->places_unknown.ok()) continue;
    lines.push_back(fmt::format("{} of {}: {}",
                                comparison.by_parameter
                                    ? "whether parameters lie as on the other side in the buffers"
                                    : "parameters without the gaps between them in the buffers",
                                side, rest->places_unknown.first().message));
  }
}

// What takes no part, one line each.
std::vector<std::string> NotCompared(const Comparison& comparison) {
  std::vector<std::string> lines;
  AddLeftOut(comparison, lines);
  AddBuffers(comparison, lines);
  if (!comparison.run) {
    for (const auto& [side, rest, other, of_other] :
         {std::tuple('A', &comparison.a, 'B', &comparison.b),
          std::tuple('B', &comparison.b, 'A', &comparison.a)}) {
      if (!rest->holds_run) continue;
      std::string why;
      if (!rest->not_a_run.ok()) {
        const Problem& problem = rest->not_a_run.first();
        why = problem.message;
        if (!problem.tensor.empty()) why += ": " + problem.tensor;
      } else if (!of_other->holds_run) {
        why = fmt::format("{} holds none", other);
      } else {
        why = fmt::format("that of {} is not understood", other);
      }
      lines.push_back(fmt::format("the training state of {}: {}", side, why));
    }
    return lines;
  }
  for (const auto& [side, names] :
       {std::pair('A', &comparison.run->only_a), std::pair('B', &comparison.run->only_b)}) {
    if (names->empty()) continue;
    lines.push_back(fmt::format("what {} alone says: {}", side, fmt::join(*names, ", ")));
  }
  for (const auto& [side, rest] : {std::pair('A', &comparison.a), std::pair('B', &comparison.b)}) {
    if (rest->no_settings.ok()) continue;
    lines.push_back(fmt::format("the settings of the runs: of {}, {}", side,
                                rest->no_settings.first().message));
  }
  if (!comparison.run->has_same_arguments) lines.push_back("the arguments of the runs");
  if (!comparison.run->groups_unknown.ok()) {
    lines.push_back("the optimizers' groups: " + comparison.run->groups_unknown.first().message);
  }
  return lines;
}

std::string Typed(const TensorAsked& tensor) {
  return std::string(DTypeName(tensor.dtype)) + FormatDims(tensor.shape);
}

// "; in B model.layers.3.mlp.up_proj.weight at [7, 0]", of sides that have other names, and of a
// copy the files.
std::string DescribeStored(const TensorDiff& diff, const Differences& findings) {
  const TensorPair& pair = *diff.pair;
  const Dims first = IndexAt(pair.a.shape, diff.elements.first->position);
  std::string text;
  for (const auto& [side, index, asked] :
       {std::tuple('A', findings.index_a, &pair.a), std::tuple('B', findings.index_b, &pair.b)}) {
    const std::optional<StoredElement> stored = StoredAt(*index, *asked, first, pair.copy);
    if (!stored || (pair.copy == 0 && stored->key == pair.key)) continue;
    text += fmt::format("; in {} {} at {}", side, EscapeControls(stored->key),
                        FormatDims(stored->index));
    if (pair.copy > 0) text += " of " + EscapeControls(stored->file);
  }
  return text;
}

std::string DescribeElements(const TensorDiff& diff, const Differences& findings) {
  const ElementDiff& elements = diff.elements;
  if (!elements.first) return elements.num_elements == 0 ? "" : ", the same numbers";
  const FirstDifference& first = *elements.first;
  const DType a = diff.pair->a.dtype;
  const DType b = diff.pair->b.dtype;
  std::string value_a = ValueText(a, first.a);
  std::string value_b = ValueText(b, first.b);
  if (value_a == value_b) {  // NaNs, or a bool that is neither 0 nor 1
    value_a += " (" + BitsText(a, first.a) + ")";
    value_b += " (" + BitsText(b, first.b) + ")";
  }
  return fmt::format(": {} of {} elements, {}{}; first at {}: {} and {}{}", elements.num_differing,
                     elements.num_elements,
                     elements.max_abs ? "by at most " + DifferenceText(diff) : "by no number",
                     elements.num_nan > 0 ? fmt::format(", {} with NaN", elements.num_nan) : "",
                     FormatDims(IndexAt(diff.pair->a.shape, first.position)), value_a, value_b,
                     DescribeStored(diff, findings));
}

void PrintDifferent(const TensorDiff& diff, const Differences& findings, Streams& streams) {
  const TensorAsked& a = diff.pair->a;
  const TensorAsked& b = diff.pair->b;
  const std::string key = EscapeControls(diff.pair->Name());
  if (!diff.unreadable.ok()) {
    streams.out.Write(fmt::format("unreadable  {}  {}\n", key, Typed(a)));
  } else if (!diff.has_same_shape) {
    streams.out.Write(fmt::format("differs     {}  {} and {}\n", key, Typed(a), Typed(b)));
  } else {
    streams.out.Write(fmt::format("differs     {}  {}{}{}\n", key, Typed(a),
                                  diff.has_same_dtype ? "" : " and " + Typed(b),
                                  DescribeElements(diff, findings)));
  }
}

void PrintObjects(const ObjectDiff& objects, Streams& streams) {
  for (const std::string& key : objects.only_a) {
    streams.out.Write("only in A   " + EscapeControls(key) + "  (object)\n");
  }
  for (const std::string& key : objects.only_b) {
    streams.out.Write("only in B   " + EscapeControls(key) + "  (object)\n");
  }
  const auto brief = [](const std::string& json) {
    return json.size() <= kMaxObjectBytes ? EscapeControls(json)
                                          : fmt::format("{} bytes of JSON", json.size());
  };
  for (const DifferingObject& object : objects.different) {
    streams.out.Write(fmt::format("differs     {}  (object): {} and {}\n",
                                  EscapeControls(object.key), brief(object.a), brief(object.b)));
  }
}

void PrintSettings(const RunComparison& run, Streams& streams) {
  for (const DifferentSetting& setting : run.different) {
    const std::string tensors =
        setting.num_tensors == 0 ? ""
                                 : fmt::format("; of {} tensors, the first {}", setting.num_tensors,
                                               EscapeControls(setting.first_tensor));
    streams.out.Write(fmt::format("differs     {}  (setting): {} and {}{}\n", setting.name,
                                  EscapeControls(layout::FormatValue(setting.a)),
                                  EscapeControls(layout::FormatValue(setting.b)), tensors));
  }
}

}  // namespace

void PrintDifferencesJson(const Differences& findings, cli::Streams& streams) {
  const Comparison& comparison = *findings.comparison;
  JsonWriter json(2);
  json.BeginObject();
  json.Key("equal").Bool(findings.is_equal());
  json.Key("compared").Text(comparison.is_of_models ? "as models" : "as stored");
  json.Key("naming");
  comparison.is_of_models ? json.Text(comparison.naming) : json.Null();
  json.Key("tensors").Int(NumTensors(comparison));
  json.Key("elements").Int(findings.num_elements);
  AppendKeys("only_a", comparison.a.only, json);
  AppendKeys("only_b", comparison.b.only, json);
  json.Key("different").BeginArray();
  for (const TensorDiff& diff : findings.different) {
    AppendDifferent(diff, findings, json);
    streams.out.Write(json.TakeSoFar());
  }
  json.End();
  AppendObjects(findings.objects, json, streams);
  if (comparison.is_of_models) {
    json.Key("training_state").Bool(comparison.run.has_value());
    if (comparison.run) AppendSettings(*comparison.run, json);
  }
  const std::vector<std::string> not_compared = NotCompared(comparison);
  if (comparison.is_of_models || !not_compared.empty()) {
    json.Key("not_compared").BeginArray();
    for (const std::string& line : not_compared) json.Text(line);
    json.End();
  }
  AppendLeftOut("left_out_a", comparison.a.left_out, json);
  AppendLeftOut("left_out_b", comparison.b.left_out, json);
  AppendProblemList(findings.problems, json);
  json.End();
  streams.out.Write(json.Take() + "\n");
}

void PrintDifferences(const Differences& findings, cli::Streams& streams) {
  const Comparison& comparison = *findings.comparison;
  for (const TensorAsked& tensor : comparison.a.only) {
    streams.out.Write(
        fmt::format("only in A   {}  {}\n", EscapeControls(tensor.key), Typed(tensor)));
  }
  for (const TensorAsked& tensor : comparison.b.only) {
    streams.out.Write(
        fmt::format("only in B   {}  {}\n", EscapeControls(tensor.key), Typed(tensor)));
  }
  for (const TensorDiff& diff : findings.different) PrintDifferent(diff, findings, streams);
  if (comparison.run) PrintSettings(*comparison.run, streams);
  PrintObjects(findings.objects, streams);
  PrintProblemList(findings.problems, streams);
  for (const std::string& line : NotCompared(comparison)) {
    streams.out.Write("not compared: " + EscapeControls(line) + "\n");
  }
  const std::string compared =
      comparison.by_parameter ? "they are stored, buffers by parameter"
      : !comparison.is_of_models
          ? "they are stored"
          : fmt::format("a {} under the names of A ({})", comparison.run ? "training run" : "model",
                        comparison.naming);
  const std::string_view verdict = findings.has_differences() ? "different"
                                   : findings.misses_run()    ? "not known to be equal"
                                                              : "equal";
  streams.out.Write(
      fmt::format("{}: {} tensors compared as {}; different: {}, only in A: {}, only in B: {}\n",
                  verdict, NumTensors(comparison), compared, findings.different.size(),
                  comparison.a.only.size(), comparison.b.only.size()));
}

}  // namespace ckpt::inspect
