// One self-contained page about a checkpoint, for a browser without a network.
#ifndef CKPT_TOOLS_CKPT_INSPECT_HTML_PAGE_H_
#define CKPT_TOOLS_CKPT_INSPECT_HTML_PAGE_H_

#include <string>
#include <string_view>

#include "tools/ckpt-inspect/health.h"

namespace ckpt::inspect {

// Text as it may stand in an element or in a quoted attribute: markup is escaped, control
// characters and what is not UTF-8 become \xNN.
[[nodiscard]] std::string EscapeHtml(std::string_view text);

// A JSON document as it may stand in a <script>: no character of it can end the element.
[[nodiscard]] std::string EscapeScript(std::string_view json);

// The page: what the checkpoint is, sizes by dtype, by rank and by file, where the chunks lie in
// the files (inline SVG), and a table of tensors to search. It loads nothing and runs no script but
// its own, which its policy names by hash. Texts of the checkpoint are escaped, and long keys cut.
//
// Bounded whatever the checkpoint holds: a limited number of tensors, files and rectangles is
// shown, and how many are left out is said.
[[nodiscard]] std::string MakePage(const ListedCheckpoint& checkpoint);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_HTML_PAGE_H_
