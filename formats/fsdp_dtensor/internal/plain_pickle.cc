#include "formats/fsdp_dtensor/internal/plain_pickle.h"

#include <cstdint>

#include "formats/pickle/writer.h"

namespace ckpt::fsdp_dtensor {
namespace {

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

}  // namespace

Bytes PickleValue(const layout::Value& value) {
  PickleWriter pickle(Dialect::kWeightsOnly);
  WriteValue(value, pickle);
  return pickle.Take();
}

Bytes PickleNamespace(const std::vector<std::pair<std::string, layout::Value>>& members) {
  PickleWriter pickle(Dialect::kWeightsOnly);
  pickle.Global("argparse", "Namespace").EmptyTuple().NewObject().BeginDict();
  for (const auto& [name, value] : members) {
    pickle.Text(name);
    WriteValue(value, pickle);
  }
  pickle.EndDict().Build();
  return pickle.Take();
}

}  // namespace ckpt::fsdp_dtensor
