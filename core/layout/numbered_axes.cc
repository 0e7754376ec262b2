#include "core/layout/numbered_axes.h"

#include <cstddef>

#include "core/layout/definitions.h"

namespace ckpt::layout {

std::vector<NumberedAxis> NumberedAxes(const LayoutTable& table, const Configuration& config) {
  std::set<std::string> in_names;
  for (const Naming& naming : table.namings) {
    for (const TensorRule& rule : naming.rules) {
      in_names.insert(rule.name_axes.begin(), rule.name_axes.end());
    }
  }
  const DefinedNames names(table.definitions, config);
  std::vector<NumberedAxis> axes;
  for (const std::string& axis : in_names) {
    const std::string& definition = table.axes.find(axis)->second.definition;
    const Result<Value> extent = names.Get(definition);
    if (!extent.ok() || extent->AsInt() == nullptr) continue;
    const int position = table.definitions.Find(definition);
    const Expr& body = table.definitions.all()[static_cast<std::size_t>(position)].body;
    axes.push_back({.axis = axis, .extent = *extent->AsInt(), .keys = names.KeysOf(body)});
  }
  return axes;
}

}  // namespace ckpt::layout
