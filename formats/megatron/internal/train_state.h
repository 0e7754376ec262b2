// How far a run is, as Megatron-Bridge keeps it: torch.save of a dict of tensors with one element.
#ifndef CKPT_FORMATS_MEGATRON_INTERNAL_TRAIN_STATE_H_
#define CKPT_FORMATS_MEGATRON_INTERNAL_TRAIN_STATE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/training/training_run.h"

namespace ckpt::megatron {

inline constexpr std::uint64_t kMaxTrainStateBytes = std::uint64_t{1} << 20;
// Names of the numbers that are read.
inline constexpr std::string_view kStep = "step";
inline constexpr std::string_view kTrainStateOperations = "floating_point_operations_so_far";

// The numbers as JSON, by name. Errors: those of torch files and of their tensors; kBadMetadata (a
// tensor is not one finite number, or too large), kResource (too many of them).
Result<std::string> ReadTrainState(Storage& storage, const Path& path);

[[nodiscard]] Bytes WriteTrainState(const TrainingRun& run);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_INTERNAL_TRAIN_STATE_H_
