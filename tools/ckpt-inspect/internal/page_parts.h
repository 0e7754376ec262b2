// The style and the script of the page that `html` writes, embedded at build.
#ifndef CKPT_TOOLS_CKPT_INSPECT_INTERNAL_PAGE_PARTS_H_
#define CKPT_TOOLS_CKPT_INSPECT_INTERNAL_PAGE_PARTS_H_

#include <span>
#include <string_view>
#include <utility>

namespace ckpt {

// page.css and page.js, in this order.
[[nodiscard]] std::span<const std::pair<std::string_view, std::string_view>> PageParts();

}  // namespace ckpt

#endif  // CKPT_TOOLS_CKPT_INSPECT_INTERNAL_PAGE_PARTS_H_
