// What a conversion makes: files of a format, with tensors called as in a naming, in one of its
// forms.
#ifndef CKPT_CONVERTERS_VERBS_TARGET_H_
#define CKPT_CONVERTERS_VERBS_TARGET_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "core/checkpoint/chosen_forms.h"
#include "core/layout/resolve.h"
#include "formats/format.h"

namespace ckpt {

struct Target {
  const Format* container = nullptr;  // never null in a conversion
  // Of the family's tables; empty: the container's usual one.
  std::string naming = {};
  // Of the naming: "transformer_impl" → "local", …
  std::map<std::string, std::string> choices = {};
  std::set<std::string> asked = {};  // those of the choices that the user made
  ChosenForms forms = {};            // of Options()

  // The naming, or the usual one; empty if there is neither.
  [[nodiscard]] std::string NamingInUse() const;
  // Whose names and form a training run has in it (FormOfRun); null: it holds weights alone, or
  // whatever the source has, under the source's keys.
  [[nodiscard]] const Format* FormForRun() const;
  // What people can choose of the forms: what the container has, and what a run has in it.
  [[nodiscard]] std::vector<FormatOption> Options() const;
};

// The format that puts tensors of this naming into the container (Format::is_naming); the container
// itself where there is none.
[[nodiscard]] const Format* FormatNamed(const Format& container, std::string_view naming);

// Whether people can choose what the tensors in a container are called. Where readers know the
// model from its configuration alone, they expect the usual names.
[[nodiscard]] bool MayChooseNaming(const Format& container);

// Whether a checkpoint can have its data in several files.
[[nodiscard]] bool MayHaveSeveralFiles(const Format& container);

// Whether its tensors can be compressed.
[[nodiscard]] bool MayCompress(const Format& container);

// Whether parity files can lie among its files.
[[nodiscard]] bool MayHaveParity(const Format& container);

// The choices of the target's naming: what the user asked for, what "original" stands for; else
// what the source's own form is, or what its configuration says, where the naming has such a
// choice. That layers are apart only because shards are singleton is no form to keep. Errors:
// kUsage (the container or the family's table cannot have the naming that was asked for),
// kUnsupported (the table lacks the container's usual one).
Result<layout::Choices> ChoicesOf(const Target& target, const ModelSource& model);

// Whether another value of the choice would give the model's tensors or objects other names or
// shapes than in `layout`, its form. The names of experts are no choice where there are none.
[[nodiscard]] bool ChoiceMatters(const ModelSource& model, const layout::ResolvedLayout& layout,
                                 const std::string& choice);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_TARGET_H_
