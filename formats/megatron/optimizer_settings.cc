#include "formats/megatron/optimizer_settings.h"

#include <array>

#include <fmt/format.h>

namespace ckpt::megatron {

std::span<const HeldFlag> HeldFlags() {
  static constexpr std::array<HeldFlag, 3> kFlags = {
      {{"amsgrad", false, "the optimizer keeps the largest second moments"},
       {"maximize", false, "the optimizer maximizes"},
       {"bias_correction", true, "the optimizer does not correct the bias of its moments"}}};
  return kFlags;
}

Status RefuseFlag(const HeldFlag& flag, std::string_view tensor) {
  const auto say = [](bool value) { return value ? "True" : "False"; };
  return Error(ErrorKind::kUnsupported, flag.otherwise)
      .Tensor(tensor)
      .Expected(say(flag.value))
      .Actual(say(!flag.value));
}

Status ReadOptimizerSettings(const ObjectFields& fields, std::string_view prefix,
                             ParamGroup& group) {
  Status refused;
  for (const HeldFlag& flag : HeldFlags()) {
    bool value = flag.value;
    CKPT_RETURN_IF_ERROR(fields.Read(flag.name, value));
    if (value != flag.value) refused.Add(RefuseFlag(flag, fmt::format("{}{}", prefix, flag.name)));
  }
  if (!refused.ok()) return refused;
  CKPT_RETURN_IF_ERROR(fields.Read("weight_decay", group.weight_decay));
  if (fields.Has("momentum")) {
    SgdSettings& sgd = group.sgd.emplace();
    CKPT_RETURN_IF_ERROR(fields.Read("momentum", sgd.momentum));
    CKPT_RETURN_IF_ERROR(fields.Read("dampening", sgd.dampening));
    return fields.Read("nesterov", sgd.nesterov);
  }
  CKPT_RETURN_IF_ERROR(fields.Read("betas", group.betas));
  return fields.Read("eps", group.eps);
}

SgdSettings SgdOf(const layout::Configuration& args) {
  const auto said = args.find("sgd_momentum");
  const double* const momentum = said == args.end() ? nullptr : said->second.AsFloat();
  constexpr double kDefault = 0.9;  // Megatron's
  return {.momentum = momentum == nullptr ? kDefault : *momentum};
}

}  // namespace ckpt::megatron
