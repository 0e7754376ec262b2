// Formats a list of names for a sentence.
#ifndef CKPT_CORE_BASE_NAME_LIST_H_
#define CKPT_CORE_BASE_NAME_LIST_H_

#include <cstddef>
#include <span>
#include <string>

namespace ckpt {

// "a, b, c and 4 more": so many are named at most.
inline constexpr std::size_t kMostNamed = 3;
[[nodiscard]] std::string NameSome(std::span<const std::string> names);
// The same of `count` names, of which `names` are the first ones: all, or at least kMostNamed.
[[nodiscard]] std::string NameSome(std::span<const std::string> names, std::size_t count);

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_NAME_LIST_H_
