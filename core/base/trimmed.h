// A text without the blanks around it.
#ifndef CKPT_CORE_BASE_TRIMMED_H_
#define CKPT_CORE_BASE_TRIMMED_H_

#include <cstddef>
#include <string_view>

namespace ckpt {

// Without the spaces, tabs and ends of lines at both ends. A view of `text`.
[[nodiscard]] inline std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_TRIMMED_H_
