#include "formats/dcp/internal/field_names.h"

#include <string_view>
#include <utility>

namespace ckpt::dcp {
namespace {

FieldName Parse(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, FieldName>, 7> kNames = {{
      {"offsets", FieldName::kOffsets},
      {"sizes", FieldName::kSizes},
      {"fqn", FieldName::kFqn},
      {"offset", FieldName::kOffset},
      {"length", FieldName::kLength},
      {"relative_path", FieldName::kRelativePath},
      {"transform_descriptors", FieldName::kTransformDescriptors},
  }};
  for (const auto& [name, value] : kNames) {
    if (text == name) return value;
  }
  return FieldName::kOther;
}

}  // namespace

Fields FieldNames::Sort(const pickle::Graph& graph, const pickle::InstanceLiteral& instance) {
  Fields fields;
  for (const pickle::LiteralField& field : instance.fields) {
    Known& known = known_[field.name % known_.size()];
    if (known.node != field.name) known = {field.name, Parse(graph.text(field.name))};
    fields.Set(known.name, &field.value);
  }
  return fields;
}

}  // namespace ckpt::dcp
