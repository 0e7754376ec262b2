#include "formats/megatron/plain_pickle.h"

#include <cstdint>

namespace ckpt::megatron {

using pickle::Dialect;
using pickle::PickleWriter;

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
    WriteValue(value, pickle);
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
