#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json_writer.h"
#include "core/layout/value.h"
#include "tools/ckpt-inspect/diff_report.h"
#include "tools/ckpt-inspect/element.h"
#include "tools/ckpt-inspect/internal/differing_element.h"
#include "tools/ckpt-inspect/internal/not_compared.h"
#include "tools/ckpt-inspect/problem_list.h"

namespace ckpt::inspect {
namespace {

using cli::Streams;

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

std::string_view WhatDiffers(const DifferingObject& object) {
  switch (object.what) {
    case ObjectDifference::kValues:
      return "values";
    case ObjectDifference::kKeyOrder:
      return "key_order";
    case ObjectDifference::kTensors:
      return "tensors";
  }
  return "values";
}

void AppendDifferent(const DifferingObject& object, JsonWriter& json) {
  json.BeginObject().Key("key").Text(object.key);
  json.Key("a").Raw(object.a).Key("b").Raw(object.b);
  json.Key("what").Text(WhatDiffers(object));
  json.Key("first");
  object.first ? json.Text(object.first->pointer) : json.Null();
  if (object.num_places > 0) json.Key("places").Int(object.num_places);
  if (object.first && object.first->a) json.Key("first_a").Raw(*object.first->a);
  if (object.first && object.first->b) json.Key("first_b").Raw(*object.first->b);
  if (object.tensor_a || object.tensor_b) {
    json.Key("first_tensor").Text((object.tensor_a ? object.tensor_a : object.tensor_b)->path);
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
    AppendDifferent(object, json);
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

}  // namespace

void PrintDifferencesJson(const Differences& findings, cli::Streams& streams) {
  const Comparison& comparison = *findings.comparison;
  JsonWriter json(2);
  json.BeginObject();
  json.Key("equal").Bool(findings.is_equal());
  json.Key("compared").Text(comparison.is_of_models ? "as models" : "as stored");
  json.Key("naming");
  comparison.is_of_models ? json.Text(comparison.naming) : json.Null();
  json.Key("tensors").Int(findings.num_tensors());
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

}  // namespace ckpt::inspect
