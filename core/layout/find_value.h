// Values of one kind in a Configuration.
#ifndef CKPT_CORE_LAYOUT_FIND_VALUE_H_
#define CKPT_CORE_LAYOUT_FIND_VALUE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/layout/value.h"

namespace ckpt::layout {

// What `config` has under `name`; nothing if the name is absent, or the value is of another kind.
[[nodiscard]] std::optional<std::int64_t> FindInt(const Configuration& config,
                                                  std::string_view name);
[[nodiscard]] std::optional<double> FindFloat(const Configuration& config, std::string_view name);
// Null instead of nothing. Valid as long as `config` is not changed.
[[nodiscard]] const std::string* FindText(const Configuration& config, std::string_view name);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_FIND_VALUE_H_
