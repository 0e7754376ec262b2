#include "tools/cli/reporting.h"

#include <fmt/format.h>

#include "core/base/counted.h"
#include "core/base/quote.h"
#include "core/base/task_pool.h"
#include "core/base/units.h"
#include "tools/cli/internal/progress_bar.h"
#include "tools/cli/internal/progress_lines.h"

namespace ckpt::cli {
namespace {

class NoProgress final : public ProgressSink {
 public:
  void OnPhase(std::string_view /*phase*/, std::uint64_t /*bytes*/,
               std::uint64_t /*items*/) override {}
  void OnDone(std::string_view /*item*/, std::uint64_t /*bytes*/) override {}
};

}  // namespace

void Tell(const CommonOptions& options, std::string_view what, std::string_view text,
          Streams& streams) {
  if (options.verbosity < 1 || options.quiet) return;
  streams.err.Write(fmt::format("info: {}: {}\n", what, EscapeControls(text)));
}

void TellResources(const CommonOptions& options, Streams& streams) {
  const int threads = options.threads > 0 ? options.threads : DefaultThreads();
  Tell(options, "resources",
       fmt::format("{}, {} of tensor data in memory at most", Counted(threads, "thread"),
                   FormatByteSize(options.memory_budget)),
       streams);
}

std::unique_ptr<ProgressSink> MakeProgress(const CommonOptions& options, Streams& streams) {
  if (options.verbosity > 1 && !options.quiet) {
    return std::make_unique<ProgressLines>(streams.err);
  }
  if (!options.progress.value_or(streams.err_is_terminal && !options.quiet)) {
    return std::make_unique<NoProgress>();
  }
  return std::make_unique<ProgressBar>(streams.err);
}

}  // namespace ckpt::cli
