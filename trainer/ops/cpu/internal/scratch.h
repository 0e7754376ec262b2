// Scratch: memory that a thread keeps between calls.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_SCRATCH_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace ckpt::trainer {

// Memory for one use by one thread. Allocating it in every call would cost page faults every time.
// Declare it `thread_local` where it is used:
//
//   thread_local Scratch scores;
//   float* const rows = scores.Get<float>(count);  // uninitialised, aligned to a cache line
class Scratch {
 public:
  // Valid until the next call.
  template <typename T>
  T* Get(std::int64_t count) {
    const std::size_t size_bytes = static_cast<std::size_t>(count) * sizeof(T);
    if (size_bytes > size_bytes_) {
      memory_.reset();
      size_bytes_ = 0;  // if there is no memory
      memory_.reset(static_cast<std::byte*>(::operator new(size_bytes, kAlignment)));
      size_bytes_ = size_bytes;
    }
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };

  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_bytes_ = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_SCRATCH_H_
