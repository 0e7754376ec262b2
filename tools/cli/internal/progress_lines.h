// The lines that -vv shows: one for everything that is worked on.
#ifndef CKPT_TOOLS_CLI_INTERNAL_PROGRESS_LINES_H_
#define CKPT_TOOLS_CLI_INTERNAL_PROGRESS_LINES_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "core/base/mutex.h"
#include "core/exec/progress.h"
#include "tools/cli/text_output.h"

namespace ckpt::cli {

// Writes "convert: decoder.layers.12.mlp.w2" when the first bytes of a tensor or file are done,
// once per phase. Several threads share the work, so lines come in the order of the work.
// Thread-safe.
class ProgressLines final : public ProgressSink {
 public:
  // REQUIRES: `err` outlives this.
  explicit ProgressLines(TextOutput& err);

  void OnPhase(std::string_view phase, std::uint64_t bytes, std::uint64_t items) override
      CKPT_EXCLUDES(mutex_);
  void OnDone(std::string_view item, std::uint64_t bytes) override CKPT_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::string phase_ CKPT_GUARDED_BY(mutex_);
  TextOutput& err_ CKPT_GUARDED_BY(mutex_);
  std::set<std::string, std::less<>> told_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_INTERNAL_PROGRESS_LINES_H_
