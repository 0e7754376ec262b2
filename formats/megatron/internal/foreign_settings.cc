#include "formats/megatron/internal/foreign_settings.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/result.h"
#include "core/training/run_format.h"

namespace ckpt::megatron {
namespace {

enum class Foreign : std::uint8_t {
  kAlways,  // no Adam and no SGD has it
  kToSgd,   // Adam has it
  // Some Adams have it, too, and compute as Adam while it is None or False. To SGD it is always
  // foreign: timm's SGDW decouples its decay in any case.
  kUnlessOff,
};

struct ForeignSetting {
  std::string_view name;
  Foreign foreign;
};

// Settings that only other optimizers have, although they keep the same state as torch's SGD or
// Adam. ReadTorchGroup also asks for `dampening` and `nesterov`, or for `amsgrad` or
// `bias_correction`.
//
// A list of what is refused, and not of what is known. Programs and schedulers put settings of
// their own into groups (`name`, `lr_scale`, `max_momentum`), which torch's optimizers do not read
// and which go along (ParamGroup::others). So nothing tells an optimizer that is not listed here.
constexpr std::array<ForeignSetting, 29> kForeignSettings = {{
    // Muon of torch, of Keller Jordan, Moonlight and Megatron
    {"ns_steps", Foreign::kAlways},
    {"ns_coefficients", Foreign::kAlways},
    {"num_ns_steps", Foreign::kAlways},
    {"adjust_lr_fn", Foreign::kAlways},
    {"fp32_matmul_prec", Foreign::kAlways},
    {"momentum_beta", Foreign::kAlways},
    {"use_nesterov", Foreign::kAlways},
    {"use_muon", Foreign::kUnlessOff},
    // LARS and LAMB
    {"trust_coefficient", Foreign::kAlways},
    {"trust_coeff", Foreign::kAlways},
    {"trust_coef", Foreign::kAlways},
    {"trust_clip", Foreign::kAlways},
    {"always_adapt", Foreign::kAlways},
    {"grad_averaging", Foreign::kAlways},
    {"max_coeff", Foreign::kAlways},
    {"min_coeff", Foreign::kAlways},
    // decay in another way
    {"decoupled_decay", Foreign::kAlways},
    {"use_decoupled_weight_decay", Foreign::kAlways},
    {"weight_decay_method", Foreign::kAlways},
    {"weight_decouple", Foreign::kAlways},
    {"corrected_weight_decay", Foreign::kUnlessOff},
    // updates that agree with the gradient alone
    {"caution", Foreign::kUnlessOff},
    {"cautious", Foreign::kUnlessOff},
    // around another optimizer, in whose groups they stand: Lookahead, SAM
    {"lookahead_alpha", Foreign::kAlways},
    {"lookahead_k", Foreign::kAlways},
    {"rho", Foreign::kAlways},
    // Adam's, but to SGD those of LARS, Muon and others
    {"betas", Foreign::kToSgd},
    {"eps", Foreign::kToSgd},
    {"amsgrad", Foreign::kToSgd},
}};

}  // namespace

Status CheckForeignSettings(const StoredSettings& stored, bool is_sgd) {
  std::vector<std::string_view> found;
  for (const auto& [name, foreign] : kForeignSettings) {
    if (!stored.Has(name) || (foreign == Foreign::kToSgd && !is_sgd)) continue;
    if (foreign == Foreign::kUnlessOff && !is_sgd) {
      CKPT_ASSIGN_OR_RETURN(const bool is_off, stored.IsOff(name));
      if (is_off) continue;
    }
    found.push_back(name);
  }
  if (found.empty()) return OkStatus();
  return Error(ErrorKind::kUnsupported,
               fmt::format("the optimizer has a setting that {} does not have",
                           is_sgd ? "SGD" : "Adam"))
      .Tensor(stored.Where(found.front()))
      .Actual(fmt::format("{}", fmt::join(found, ", ")))
      .Hint(kTakeWeightsAlone);
}

}  // namespace ckpt::megatron
