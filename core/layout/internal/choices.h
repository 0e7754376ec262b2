// The forms of a naming: what its choices may be.
#ifndef CKPT_CORE_LAYOUT_INTERNAL_CHOICES_H_
#define CKPT_CORE_LAYOUT_INTERNAL_CHOICES_H_

#include <vector>

#include "core/base/result.h"
#include "core/layout/layout_table.h"
#include "core/layout/resolve.h"

namespace ckpt::layout {

// The value of every choice: the given one, else the first.
// Errors: kUsage (no such choice or value).
Result<Choices> CompleteChoices(const Naming& naming, const Choices& given);

// Every combination of a naming's choices that agrees with `fixed`, first values first.
[[nodiscard]] std::vector<Choices> ListChoices(const Naming& naming, const Choices& fixed);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_INTERNAL_CHOICES_H_
