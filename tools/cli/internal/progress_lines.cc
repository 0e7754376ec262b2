#include "tools/cli/internal/progress_lines.h"

#include <fmt/format.h>

#include "core/base/counted.h"
#include "core/base/quote.h"
#include "core/base/units.h"

namespace ckpt::cli {

ProgressLines::ProgressLines(TextOutput& err) : err_(err) {}

void ProgressLines::OnPhase(std::string_view phase, std::uint64_t bytes, std::uint64_t items) {
  const MutexLock lock(mutex_);
  phase_ = phase;
  told_.clear();
  err_.Write(fmt::format("{}: {} in {}\n", phase_, FormatByteSize(bytes), Counted(items, "item")));
}

void ProgressLines::OnDone(std::string_view item, std::uint64_t /*bytes*/) {
  const MutexLock lock(mutex_);
  if (told_.contains(item)) return;
  told_.emplace(item);
  err_.Write(fmt::format("{}: {}\n", phase_, EscapeControls(item)));
  (void)err_.Flush().ok();
}

}  // namespace ckpt::cli
