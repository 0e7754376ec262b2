// The interface through which long work reports its progress. tools/cli implements it; libraries
// only call it.
#ifndef CKPT_CORE_EXEC_PROGRESS_H_
#define CKPT_CORE_EXEC_PROGRESS_H_

#include <cstdint>
#include <string_view>

namespace ckpt {

// Thread-safety: both methods may be called from any thread.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  // A phase of the work begins: "convert", "verify".
  virtual void OnPhase(std::string_view phase, std::uint64_t bytes, std::uint64_t items) = 0;
  // `bytes` more are done; `item` is what they belong to.
  virtual void OnDone(std::string_view item, std::uint64_t bytes) = 0;
};

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_PROGRESS_H_
