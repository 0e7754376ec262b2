#include "formats/megatron/plain_pickle.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "core/tensor/dtype.h"

namespace ckpt::megatron {
namespace {

using pickle::Dialect;
using pickle::PickleWriter;

// Megatron's arguments of such names, as params_dtype, are dtypes of torch, which are read as their
// names. Others have names of their own: "fp32".
bool IsTorchDType(std::string_view name, const layout::Value& value) {
  const std::string* const text = value.AsText();
  return text != nullptr && name.ends_with("_dtype") && ParseDType(*text).has_value();
}

}  // namespace

void WriteValue(const layout::Value& value, PickleWriter& pickle) {
  if (const bool* boolean = value.AsBool()) {
    pickle.Bool(*boolean);
  } else if (const std::int64_t* integer = value.AsInt()) {
    pickle.Int(*integer);
  } else if (const double* number = value.AsFloat()) {
    pickle.Float(*number);
  } else if (const std::string* text = value.AsText()) {
    pickle.Text(*text);
  } else if (const layout::Value::List* list = value.AsList()) {
    pickle.BeginList();
    for (const layout::Value& element : *list) WriteValue(element, pickle);
    pickle.EndList();
  } else {
    pickle.None();
  }
}

void WriteValue(const std::array<double, 2>& pair, PickleWriter& pickle) {
  pickle.BeginTuple().Float(pair[0]).Float(pair[1]).EndTuple();
}

void WriteNamespace(const NamedValues& members, PickleWriter& pickle) {
  pickle.Global("argparse", "Namespace").EmptyTuple().NewObject().BeginDict();
  for (const auto& [name, value] : members) {
    pickle.Text(name);
    if (IsTorchDType(name, value)) {
      pickle.Global("torch", *value.AsText());
    } else {
      WriteValue(value, pickle);
    }
  }
  pickle.EndDict().Build();
}

Bytes PickleValue(const layout::Value& value) {
  PickleWriter pickle(Dialect::kWeightsOnly);
  WriteValue(value, pickle);
  return pickle.Take();
}

Bytes PickleValue(const std::array<double, 2>& pair) {
  PickleWriter pickle(Dialect::kWeightsOnly);
  WriteValue(pair, pickle);
  return pickle.Take();
}

Bytes PickleNamespace(const NamedValues& members) {
  PickleWriter pickle(Dialect::kWeightsOnly);
  WriteNamespace(members, pickle);
  return pickle.Take();
}

}  // namespace ckpt::megatron
