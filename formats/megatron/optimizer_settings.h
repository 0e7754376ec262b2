// What torch's and Megatron's optimizers keep in a parameter group, as far as several formats read it.
#ifndef CKPT_FORMATS_MEGATRON_OPTIMIZER_SETTINGS_H_
#define CKPT_FORMATS_MEGATRON_OPTIMIZER_SETTINGS_H_

#include <span>
#include <string_view>

#include "core/base/status.h"
#include "core/layout/value.h"
#include "core/training/training_run.h"
#include "formats/megatron/object_fields.h"

namespace ckpt::megatron {

// A flag of which a run holds one value only.
struct HeldFlag {
  std::string_view name;
  bool value;
  std::string_view otherwise;  // what the optimizer does if it has the other one
};
[[nodiscard]] std::span<const HeldFlag> HeldFlags();

// The error for a flag that has the other value, at `tensor`: kUnsupported.
[[nodiscard]] Status RefuseFlag(const HeldFlag& flag, std::string_view tensor);

// The settings of SGD or Adam, each stored as an object of its own. One of SGD has a momentum.
// Errors: kUnsupported (a flag that a run does not hold), those of ObjectFields::Read.
Status ReadOptimizerSettings(const ObjectFields& fields, std::string_view prefix,
                             ParamGroup& group);

// Those of a group of SGD that has Adam's, as earlier versions of this program stored it.
[[nodiscard]] SgdSettings SgdOf(const layout::Configuration& args);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_OPTIMIZER_SETTINGS_H_
