// Parallel: divides the work of one call among a few threads.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_PARALLEL_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_PARALLEL_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace ckpt::trainer {

// Thread-safety: several threads may call. One call at a time uses the workers; the others may run
// on their caller alone.
class Parallel {
 public:
  // If the system refuses threads, fewer do the work.
  explicit Parallel(int threads);
  ~Parallel();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  [[nodiscard]] int threads() const { return threads_; }

  // Calls `body(begin, end)` for ranges that cover [0, count) without overlap. Each has at least
  // `grain` elements, except the last. The division depends on the number of threads, so results
  // must not depend on the division. Throws what `body` throws, when no thread runs it any more.
  void For(std::int64_t count, std::int64_t grain,
           const std::function<void(std::int64_t begin, std::int64_t end)>& body);

 private:
  struct Pool;

  const int threads_;
  std::unique_ptr<Pool> pool_;  // null for one thread
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_PARALLEL_H_
