// Random models, and checkpoints of them that no writer of ours makes: cut in every dim, strided,
// tied.
#ifndef CKPT_TESTS_RELIABILITY_RANDOM_TENSORS_H_
#define CKPT_TESTS_RELIABILITY_RANDOM_TENSORS_H_

#include <memory>
#include <random>
#include <span>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/source.h"
#include "core/tensor/dtype.h"

namespace ckpt::testing {

// Up to eight tensors of 0 to 4 dims with up to 6 KiB each, of the given dtypes: scalars, empty
// ones, odd sizes, equal ones, keys with dots, spaces, quotes and letters of other scripts. In
// order of their keys.
[[nodiscard]] std::vector<MemoryTensor> RandomTensors(std::span<const DType> dtypes,
                                                      std::mt19937_64& rng);

// The tensors as chunks of a random grid, unevenly cut in every dim, each stored in one of several
// files with its dims in some order and gaps between rows.
[[nodiscard]] Result<std::unique_ptr<CheckpointSource>> ScatteredSource(
    std::span<const MemoryTensor> tensors, std::mt19937_64& rng);

// The same as torch.save writes a state dict of views: transposed and sliced ones, several into one
// storage; equal tensors are two names of one.
[[nodiscard]] Bytes TorchSaveFile(std::span<const MemoryTensor> tensors, std::mt19937_64& rng);

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_RANDOM_TENSORS_H_
