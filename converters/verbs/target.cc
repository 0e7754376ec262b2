#include "converters/verbs/target.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "converters/families/known_namings.h"
#include "formats/registry/registry.h"
#include "formats/registry/stored_run.h"

namespace ckpt {
namespace {

// Whether readers (ours, too) tell by their names that tensors in the container are of `other`, and
// take the checkpoint for one of that format.
bool TakesNames(const Format& other, const Format& container) {
  const bool is_plain = container.usual_naming.empty();
  return !is_plain || other.built_on == &container;
}

// The namings of the table that tensors in the container can have: not those by which readers know
// another format, nor those that only sources or the trainer have.
std::vector<std::string> NamingsIn(const Format& container, const layout::LayoutTable& table) {
  std::vector<std::string> namings;
  for (const layout::Naming& naming : table.namings) {
    if (naming.id == kTrainerNaming) continue;
    const bool is_usual = naming.id == container.usual_naming;
    const bool is_usual_elsewhere = std::ranges::any_of(Formats(), [&](const Format* format) {
      const bool is_of_sources = format->plan_weights == nullptr;
      return format->usual_naming == naming.id && (is_of_sources || TakesNames(*format, container));
    });
    if (is_usual || (MayChooseNaming(container) && !is_usual_elsewhere)) {
      namings.push_back(naming.id);
    }
  }
  return namings;
}

// The namings with which people can ask for the container: also those of formats that put their
// tensors into it.
std::vector<std::string> NamingsFor(const Format& container, const layout::LayoutTable& table) {
  std::vector<std::string> namings = NamingsIn(container, table);
  for (const layout::Naming& naming : table.namings) {
    const bool is_known = std::ranges::find(namings, naming.id) != namings.end();
    if (!is_known && FormatNamed(container, naming.id) != &container) namings.push_back(naming.id);
  }
  return namings;
}

// The format that is written under this naming if nothing else is asked for; empty: none.
std::string_view WrittenFormatNamed(std::string_view naming) {
  const auto found = std::ranges::find_if(Formats(), [&](const Format* format) {
    return format->usual_naming == naming && format->plan_weights != nullptr;
  });
  return found == Formats().end() ? std::string_view() : (*found)->name;
}

Result<const layout::Naming*> FindNaming(const Target& target, const ModelSource& model) {
  const std::string asked = target.NamingInUse();
  const std::vector<std::string> namings = NamingsIn(*target.container, *model.family);
  if (std::ranges::find(namings, asked) != namings.end()) return model.family->FindNaming(asked);
  const bool is_asked = !target.naming.empty();
  const std::string_view usual = is_asked ? WrittenFormatNamed(asked) : std::string_view();
  const std::vector<std::string> possible = NamingsFor(*target.container, *model.family);
  return Error(is_asked ? ErrorKind::kUsage : ErrorKind::kUnsupported,
               fmt::format("this model in a {} checkpoint cannot have the naming {}",
                           target.container->name, asked))
      .Expected(possible.empty() ? "a layout table that describes it"
                                 : fmt::format("{}", fmt::join(possible, " or ")))
      .Hint(!usual.empty()                 ? fmt::format("ckpt-convert --to {} writes it", usual)
            : is_asked || possible.empty() ? ""
                                           : "ckpt-convert --naming NAME chooses it");
}

// Whether a choice of the source is one for its targets, too. Where its shards are singleton, each
// layer has keys of its own, also if all are alike.
bool IsForTargets(const std::string& choice, const layout::Choices& source) {
  if (choice != "layer_keys") return true;
  const auto shards = source.find("shards");
  return shards == source.end() || shards->second != "singleton";
}

}  // namespace

std::string Target::NamingInUse() const {
  return naming.empty() ? std::string(container->usual_naming) : naming;
}

const Format* Target::FormForRun() const {
  const std::string names = NamingInUse();
  if (names.empty()) return nullptr;
  const Format& form = FormOfRun(*container, names);
  return form.run == nullptr ? nullptr : &form;
}

std::vector<FormatOption> Target::Options() const {
  const Format* const form = FormForRun();
  return OptionsOfRun(*container, form == nullptr ? *container : *form);
}

const Format* FormatNamed(const Format& container, std::string_view naming) {
  for (const Format* format : Formats()) {
    if (!format->is_naming || format->usual_naming != naming) continue;
    for (; format != nullptr; format = format->elsewhere) {
      if (format->built_on == &container) return format;
    }
  }
  return &container;
}

bool MayChooseNaming(const Format& container) { return !container.needs_config; }

bool MayHaveSeveralFiles(const Format& container) {
  return !container.is_one_file || container.is_part != nullptr;
}

bool MayCompress(const Format& container) { return container.can_compress; }

bool MayHaveParity(const Format& container) { return !container.is_one_file; }

Result<layout::Choices> ChoicesOf(const Target& target, const ModelSource& model) {
  CKPT_ASSIGN_OR_RETURN(const layout::Naming* const naming, FindNaming(target, model));
  layout::Choices choices;
  for (const layout::Choice& choice : naming->choices) {
    if (choice.is_of_sources) continue;
    const auto own = model.match.layout.choices.find(choice.name);
    const auto said = model.config.find(choice.name);
    const std::string* value = nullptr;
    if (own != model.match.layout.choices.end() &&
        IsForTargets(choice.name, model.match.layout.choices)) {
      value = &own->second;
    } else if (said != model.config.end()) {
      value = said->second.AsText();
    }
    if (value == nullptr) continue;
    if (std::ranges::find(choice.values, *value) != choice.values.end()) {
      choices[choice.name] = *value;
    }
  }
  for (const auto& [name, value] : target.choices) {
    const auto declared = std::ranges::find(naming->choices, name, &layout::Choice::name);
    // If a target of the family does not have this choice, any value is right.
    if (declared == naming->choices.end() || declared->is_of_sources) continue;
    if (value != kOriginalChoice) {
      choices[name] = value;
      continue;
    }
    if (!model.manifest || !model.manifest->origin) continue;
    const auto original = model.manifest->origin->choices.find(name);
    if (original != model.manifest->origin->choices.end()) choices[name] = original->second;
  }
  return choices;
}

bool ChoiceMatters(const ModelSource& model, const layout::ResolvedLayout& layout,
                   const std::string& choice) {
  const layout::Naming& naming = *model.family->FindNaming(layout.naming);
  const auto declared = std::ranges::find(naming.choices, choice, &layout::Choice::name);
  if (declared == naming.choices.end()) return false;
  const auto is_named_alike = [](const auto& a, const auto& b) { return a.name == b.name; };
  const auto is_alike = [](const layout::ResolvedTensor& a, const layout::ResolvedTensor& b) {
    return a.name == b.name && a.shape == b.shape;
  };
  return std::ranges::any_of(declared->values, [&](const std::string& value) {
    layout::Choices others = layout.choices;
    others[choice] = value;
    const Result<layout::ResolvedLayout> other =
        layout::ResolveExactly(*model.family, layout.naming, model.layout_config(), others);
    if (!other.ok()) return true;  // it cannot have this form
    return !std::ranges::equal(layout.tensors, other->tensors, is_alike) ||
           !std::ranges::equal(layout.objects, other->objects, is_named_alike);
  });
}

}  // namespace ckpt
