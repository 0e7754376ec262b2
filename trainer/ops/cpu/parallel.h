// Parallel: shares the work of one call among a few threads.
#ifndef CKPT_TRAINER_OPS_CPU_PARALLEL_H_
#define CKPT_TRAINER_OPS_CPU_PARALLEL_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace ckpt::trainer {

// Thread-safety: calls from several threads take turns at the workers; each call may also run on its caller alone.
class Parallel {
 public:
  explicit Parallel(int threads);
  ~Parallel();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  [[nodiscard]] int threads() const { return threads_; }

  // Calls `body(begin, end)` for ranges that tile [0, count), each at least `grain` long but the last. The split depends
  // on the number of threads: results must not.
  void For(std::int64_t count, std::int64_t grain,
           const std::function<void(std::int64_t begin, std::int64_t end)>& body);

 private:
  struct Pool;

  const int threads_;
  std::unique_ptr<Pool> pool_;  // null for one thread
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_PARALLEL_H_
