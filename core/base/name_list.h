// Formats a list of names for a sentence.
#ifndef CKPT_CORE_BASE_NAME_LIST_H_
#define CKPT_CORE_BASE_NAME_LIST_H_

#include <span>
#include <string>

namespace ckpt {

// "a, b, c and 4 more".
[[nodiscard]] std::string NameSome(std::span<const std::string> names);

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_NAME_LIST_H_
