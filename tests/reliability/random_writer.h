// Any of our writers, with any of its options.
#ifndef CKPT_TESTS_RELIABILITY_RANDOM_WRITER_H_
#define CKPT_TESTS_RELIABILITY_RANDOM_WRITER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/source.h"
#include "core/exec/executor.h"
#include "core/io/storage.h"
#include "core/tensor/dtype.h"

namespace ckpt::testing {

enum class Container : std::uint8_t {
  kDcp,
  kFsdpDtensor,
  kTorchDist,
  kSafetensors,
  kHdf5,
  kTorchSave
};
inline constexpr Container kContainers[] = {Container::kDcp,       Container::kFsdpDtensor,
                                            Container::kTorchDist, Container::kSafetensors,
                                            Container::kHdf5,      Container::kTorchSave};

// What it can hold.
[[nodiscard]] std::vector<DType> DTypesOf(Container container);

// How a checkpoint is written: the rest of the options follows from the seed. The same choice
// writes the same files.
struct WriterChoice {
  Container container = Container::kDcp;
  std::uint64_t seed = 0;
};
[[nodiscard]] std::string Describe(const WriterChoice& choice);

// Copies every tensor of `source` into a new checkpoint at `directory`, with a number of threads
// and a budget of its own.
Result<ExecuteResult> WriteRandomly(Storage& storage, const Path& directory,
                                    const CheckpointSource& source, const WriterChoice& choice);

// What a reader opens of it.
[[nodiscard]] Path PathToOpen(const WriterChoice& choice, const Path& directory);

// Whether a checkpoint holds these tensors, every byte and every digest of them.
Status CheckTensors(const CheckpointSource& source, std::span<const MemoryTensor> expected);

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_RANDOM_WRITER_H_
