// What is wrong with a statement of a layout table.
#ifndef CKPT_CORE_LAYOUT_INTERNAL_TABLE_ERROR_H_
#define CKPT_CORE_LAYOUT_INTERNAL_TABLE_ERROR_H_

#include <string_view>

#include "core/base/quote.h"
#include "core/base/status.h"

namespace ckpt::layout {

inline Status TableError(std::string_view message, std::string_view actual = {}) {
  return Error(ErrorKind::kBadMetadata, message).Actual(actual.empty() ? "" : Quote(actual));
}

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_INTERNAL_TABLE_ERROR_H_
