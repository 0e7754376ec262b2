#include "tools/cli/progress_lines.h"

#include <utility>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/base/units.h"

namespace ckpt::cli {

ProgressLines::ProgressLines(std::string verb, TextOutput& err)
    : verb_(std::move(verb)), err_(err) {}

void ProgressLines::OnTotal(std::uint64_t bytes, std::uint64_t items) {
  const MutexLock lock(mutex_);
  told_.clear();
  err_.Write(fmt::format("{}: {} in {} items\n", verb_, FormatByteSize(bytes), items));
}

void ProgressLines::OnDone(std::string_view item, std::uint64_t /*bytes*/) {
  const MutexLock lock(mutex_);
  if (told_.contains(item)) return;
  told_.emplace(item);
  err_.Write(fmt::format("{}: {}\n", verb_, EscapeControls(item)));
  (void)err_.Flush().ok();
}

}  // namespace ckpt::cli
