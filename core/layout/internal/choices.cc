#include "core/layout/internal/choices.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/quote.h"

namespace ckpt::layout {

Result<Choices> CompleteChoices(const Naming& naming, const Choices& given) {
  Choices complete;
  for (const Choice& choice : naming.choices) {
    const auto found = given.find(choice.name);
    const std::string& value = found == given.end() ? choice.values.front() : found->second;
    if (std::find(choice.values.begin(), choice.values.end(), value) == choice.values.end()) {
      return Error(ErrorKind::kUsage, fmt::format("{} has no such value", choice.name))
          .Expected(fmt::format("{}", fmt::join(choice.values, " or ")))
          .Actual(Quote(value));
    }
    complete.emplace(choice.name, value);
  }
  for (const auto& [name, value] : given) {
    if (!complete.contains(name)) {
      return Error(ErrorKind::kUsage, fmt::format("naming {} has no such choice", naming.id))
          .Actual(Quote(name));
    }
  }
  return complete;
}

std::vector<Choices> ListChoices(const Naming& naming, const Choices& fixed) {
  std::vector<Choices> forms = {{}};
  for (const Choice& choice : naming.choices) {
    std::vector<Choices> longer;
    const auto found = fixed.find(choice.name);
    for (const Choices& form : forms) {
      for (const std::string& value : choice.values) {
        if (found != fixed.end() && found->second != value) continue;
        longer.push_back(form);
        longer.back().emplace(choice.name, value);
      }
    }
    forms = std::move(longer);
  }
  return forms;
}

}  // namespace ckpt::layout
