// RunBatch: runs of rows of which one launch takes many.
#ifndef CKPT_TRAINER_DEVICE_CUDA_RUN_BATCH_CUH_
#define CKPT_TRAINER_DEVICE_CUDA_RUN_BATCH_CUH_

#include <cstdint>

namespace ckpt::trainer::cuda {

// A parameter of the kernel, so nothing is copied first. `Run::end` counts what a kernel divides
// among its threads, rows or warps, of the batch up to the last of that run.
template <typename Run>
struct RunBatch {
  static constexpr int kMostRuns = 64;  // a power of two

  Run runs[kMostRuns];
  int num_runs = 0;

  [[nodiscard]] bool is_full() const { return num_runs == kMostRuns; }
  [[nodiscard]] __host__ __device__ std::int64_t Begin(int run) const {
    return run == 0 ? 0 : runs[run - 1].end;
  }
  [[nodiscard]] __host__ __device__ std::int64_t End() const { return Begin(num_runs); }
  // The run that has number `place` of those. REQUIRES: 0 <= place < End().
  [[nodiscard]] __device__ int RunOf(std::int64_t place) const {
    int run = 0;
#pragma unroll
    for (int step = kMostRuns / 2; step > 0; step /= 2) {
      if (run + step < num_runs && Begin(run + step) <= place) run += step;
    }
    return run;
  }
};

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_DEVICE_CUDA_RUN_BATCH_CUH_
