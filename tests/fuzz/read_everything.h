// Reads all that a checkpoint made of any bytes says it holds.
#ifndef CKPT_TESTS_FUZZ_READ_EVERYTHING_H_
#define CKPT_TESTS_FUZZ_READ_EVERYTHING_H_

#include <cstdint>

#include "core/base/bytes.h"
#include "core/checkpoint/read.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/validate.h"
#include "core/tensor/shape.h"

namespace ckpt::testing {

// As much of it as is read in about a millisecond: a few bytes may ask for any number of elements.
inline void ReadEverything(const CheckpointSource& source) {
  constexpr std::uint64_t kMaxBytes = 1 << 18;
  std::uint64_t left = kMaxBytes;
  for (const Problem& problem : ValidateIndex(source)) {
    if (problem.severity == Severity::kError) return;
  }
  for (const GlobalTensor& tensor : source.index().tensors()) {
    const std::uint64_t bytes = NumBytes(tensor.shape, tensor.dtype);
    if (bytes > left) continue;
    left -= bytes;
    const auto ignore = [](ByteSpan) { return OkStatus(); };
    (void)StreamTensor(source, tensor, kMaxBytes, ignore).ok();
  }
  for (const ObjectEntry& object : source.index().objects()) {
    (void)source.ReadObject(object).ok();
    (void)source.ReadPickled(object).ok();
  }
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_FUZZ_READ_EVERYTHING_H_
