// Numbers of things, in words.
#ifndef CKPT_CORE_BASE_COUNTED_H_
#define CKPT_CORE_BASE_COUNTED_H_

#include <concepts>
#include <string>
#include <string_view>

namespace ckpt {

// "1 file", "2 files". `several` is the plural where it is not `one` with an s.
template <std::integral Number>
[[nodiscard]] std::string Counted(Number count, std::string_view one,
                                  std::string_view several = {}) {
  std::string text = std::to_string(count) + " ";
  if (count == 1) return text.append(one);
  return several.empty() ? text.append(one) + "s" : text.append(several);
}

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_COUNTED_H_
