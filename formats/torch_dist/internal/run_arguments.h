// Megatron's arguments of a run, by name and kind.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_RUN_ARGUMENTS_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_RUN_ARGUMENTS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt::torch_dist {

class RunArguments {
 public:
  // REQUIRES: `args` outlives this.
  explicit RunArguments(const layout::Configuration& args) : args_(args) {}

  // Null: it is not there, or None.
  [[nodiscard]] const layout::Value* Find(std::string_view name) const {
    const auto found = args_.find(name);
    return found == args_.end() || found->second.is_null() ? nullptr : &found->second;
  }
  [[nodiscard]] bool Has(std::string_view name) const { return Find(name) != nullptr; }
  [[nodiscard]] bool IsTrue(std::string_view name) const {
    return Has(name) && *Find(name) == layout::Value(true);
  }
  // Whether it asks for something: it is no None, no False and no 0.
  [[nodiscard]] bool Asks(std::string_view name) const {
    return Has(name) && *Find(name) != layout::Value(false) && *Find(name) != layout::Value(0);
  }
  [[nodiscard]] std::optional<std::int64_t> Number(std::string_view name) const {
    const std::int64_t* const value = Has(name) ? Find(name)->AsInt() : nullptr;
    return value == nullptr ? std::nullopt : std::optional(*value);
  }
  // Whether the layers are Megatron's own, not Transformer Engine's.
  [[nodiscard]] bool HasLocalLayers() const {
    return Has("transformer_impl") && *Find("transformer_impl") == layout::Value("local");
  }
  // Whether all experts of a layer are one parameter: Megatron's grouped products make them so, if
  // they are not Transformer Engine's.
  [[nodiscard]] bool HasOneArrayOfExperts() const {
    return IsTrue("moe_grouped_gemm") &&
           (HasLocalLayers() || IsTrue("moe_use_legacy_grouped_gemm"));
  }
  // The same; nothing if the arguments leave it open. Where grouped products are Transformer
  // Engine's, one that is too old has none, and Megatron takes its own: `is_certain` asks for an
  // answer that does not depend on it.
  [[nodiscard]] std::optional<bool> JoinsExperts(bool is_certain = false) const {
    if (HasOneArrayOfExperts()) return true;
    if (is_certain && IsTrue("moe_grouped_gemm")) return std::nullopt;
    const bool says_class =
        Has("moe_grouped_gemm") && (!IsTrue("moe_grouped_gemm") || Has("transformer_impl"));
    return says_class ? std::optional(false) : std::nullopt;
  }

 private:
  const layout::Configuration& args_;
};

// That the arguments from which buffers follow have the kinds and values that Megatron gives them:
// where they had others, buffers would be those of another run. Errors: kUnsupported (by name).
Status CheckBufferArguments(const layout::Configuration& args);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_RUN_ARGUMENTS_H_
