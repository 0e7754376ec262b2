#include "tools/ckpt-inspect/diff_report.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "core/base/counted.h"
#include "core/base/quote.h"
#include "core/layout/value.h"
#include "tools/ckpt-inspect/internal/differing_element.h"
#include "tools/ckpt-inspect/internal/not_compared.h"
#include "tools/ckpt-inspect/problem_list.h"

namespace ckpt::inspect {
namespace {

using cli::Streams;

constexpr std::size_t kMaxObjectBytes = 120;        // of a value, for people
constexpr std::size_t kBytesBeforeDifference = 30;  // of a longer one, of which a part is shown

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

// JSON has no infinity and no NaN, and says them in an object: "inf" of {"$float": "inf"}.
std::string ForPeople(std::string number) {
  constexpr std::string_view kBegin = R"({"$float": ")";
  constexpr std::string_view kEnd = "\"}";
  if (!number.starts_with(kBegin) || !number.ends_with(kEnd)) return number;
  return number.substr(kBegin.size(), number.size() - kBegin.size() - kEnd.size());
}

std::string DescribeElements(const TensorDiff& diff, const Differences& findings) {
  const ElementDiff& elements = diff.elements;
  if (!elements.first) return elements.num_elements == 0 ? "" : ", the same numbers";
  const FirstDifference& first = *elements.first;
  const DType a = diff.pair->a.dtype;
  const DType b = diff.pair->b.dtype;
  std::string value_a = ForPeople(ValueText(a, first.a));
  std::string value_b = ForPeople(ValueText(b, first.b));
  if (value_a == value_b) {  // NaNs, or a bool that is neither 0 nor 1
    value_a += " (" + BitsText(a, first.a) + ")";
    value_b += " (" + BitsText(b, first.b) + ")";
  }
  return fmt::format(
      ": {} of {}, {}{}; first at {}: {} and {}{}", elements.num_differing,
      Counted(elements.num_elements, "element"),
      elements.max_abs ? "by at most " + ForPeople(DifferenceText(diff)) : "by no number",
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

// The character that has the byte at `at` begins here.
std::size_t BeginOfCharacter(std::string_view text, std::size_t at) {
  constexpr std::size_t kMaxCharacterBytes = 4;
  for (std::size_t back = 0; back < std::min(at + 1, kMaxCharacterBytes); ++back) {
    const bool continues =
        at < text.size() && (static_cast<unsigned char>(text[at - back]) & 0xC0U) == 0x80U;
    if (!continues) return at - back;
  }
  return at;  // no UTF-8
}

// "40 and -1": both values as JSON, of long ones what is around their first difference.
std::string DescribeValues(std::string_view a, std::string_view b) {
  std::size_t begin = 0;
  if (std::max(a.size(), b.size()) > kMaxObjectBytes) {
    const auto common = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
    begin = BeginOfCharacter(a, common - std::min(common, kBytesBeforeDifference));
  }
  const auto part = [&](std::string_view text) {
    const std::size_t end = BeginOfCharacter(text, std::min(begin + kMaxObjectBytes, text.size()));
    return fmt::format("{}{}{}", begin > 0 ? "…" : "",
                       EscapeControls(text.substr(begin, end - begin)),
                       end < text.size() ? "…" : "");
  };
  return part(a) + " and " + part(b);
}

std::string DescribeTensor(const std::optional<HeldTensor>& tensor) {
  if (!tensor) return "nothing";
  return fmt::format("{}{} sha256 {}", DTypeName(tensor->dtype), FormatDims(tensor->shape),
                     tensor->sha256);
}

std::string DescribeObject(const DifferingObject& object) {
  const bool is_short = std::max(object.a.size(), object.b.size()) <= kMaxObjectBytes;
  const std::string pointer = object.first ? EscapeControls(object.first->pointer) : "";
  switch (object.what) {
    case ObjectDifference::kValues: {
      // Short objects and those that are no mapping or list are shown whole.
      if (is_short || pointer.empty()) return DescribeValues(object.a, object.b);
      const auto& [at, a, b] = *object.first;
      return fmt::format("{}at {}: {}",
                         object.num_places > 1 ? fmt::format("{} places, first ", object.num_places)
                                               : std::string(),
                         pointer, DescribeValues(a.value_or("nothing"), b.value_or("nothing")));
    }
    case ObjectDifference::kKeyOrder:
      if (is_short) return "another order of keys: " + DescribeValues(object.a, object.b);
      return "another order of keys" + (pointer.empty() ? "" : " at " + pointer);
    case ObjectDifference::kTensors: {
      const std::optional<HeldTensor>& named = object.tensor_a ? object.tensor_a : object.tensor_b;
      if (!named) return DescribeValues(object.a, object.b);
      return fmt::format("first in the tensor {}: {} and {}", EscapeControls(named->path),
                         DescribeTensor(object.tensor_a), DescribeTensor(object.tensor_b));
    }
  }
  return {};
}

void PrintObjects(const ObjectDiff& objects, Streams& streams) {
  for (const std::string& key : objects.only_a) {
    streams.out.Write("only in A   " + EscapeControls(key) + "  (object)\n");
  }
  for (const std::string& key : objects.only_b) {
    streams.out.Write("only in B   " + EscapeControls(key) + "  (object)\n");
  }
  for (const DifferingObject& object : objects.different) {
    streams.out.Write(fmt::format("differs     {}  (object): {}\n", EscapeControls(object.key),
                                  DescribeObject(object)));
  }
}

void PrintSettings(const RunComparison& run, Streams& streams) {
  for (const DifferentSetting& setting : run.different) {
    const std::string tensors =
        setting.num_tensors == 0
            ? ""
            : fmt::format("; of {}, the first {}", Counted(setting.num_tensors, "tensor"),
                          EscapeControls(setting.first_tensor));
    streams.out.Write(fmt::format("differs     {}  (setting): {} and {}{}\n", setting.name,
                                  EscapeControls(layout::FormatValue(setting.a)),
                                  EscapeControls(layout::FormatValue(setting.b)), tensors));
  }
}

}  // namespace

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
  const std::string settings =
      comparison.run && !comparison.run->different.empty()
          ? fmt::format(", settings that differ: {}", comparison.run->different.size())
          : std::string();
  const std::size_t num_unread = findings.unread_entries().size();
  const std::string unread =
      num_unread == 0 ? std::string() : fmt::format(", unreadable entries: {}", num_unread);
  const std::string_view verdict = findings.has_differences() ? "different"
                                   : findings.is_equal()      ? "equal"
                                                              : "not known to be equal";
  streams.out.Write(fmt::format(
      "{}: {} compared as {}; different: {}, only in A: {}, only in B: {}{}{}\n", verdict,
      Counted(findings.num_tensors(), "tensor"), compared, findings.different.size(),
      comparison.a.only.size(), comparison.b.only.size(), unread, settings));
}

}  // namespace ckpt::inspect
