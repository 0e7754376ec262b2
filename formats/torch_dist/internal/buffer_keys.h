// Which tensors are the buffers of a distributed optimizer: what their keys say.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_BUFFER_KEYS_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_BUFFER_KEYS_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/checkpoint/index.h"
#include "core/tensor/dtype.h"

namespace ckpt::torch_dist {

// One buffer of a group of ranks.
struct BufferId {
  std::string optimizer;  // "chained_1." of one of several optimizers
  std::int64_t group = 0;
  std::int64_t buffer = 0;
  std::string dtypes;  // of its parameters and of their gradients

  friend auto operator<=>(const BufferId&, const BufferId&) = default;
};
// A tensor for each field: "param", "exp_avg", ….
using Bucket = std::map<std::string, const GlobalTensor*, std::less<>>;
using Buffers = std::map<BufferId, std::map<std::int64_t, Bucket>>;

// Those with keys such as `chained_0.optimizer.distributed.dp_group_idx_1.gbuf_idx_0.dtype_(
// torch.bfloat16, torch.float32).bucket_idx_0.exp_avg`.
[[nodiscard]] Buffers FindBuffers(const CheckpointIndex& index);

// The dtype of a buffer's parameters: the first of "torch.bfloat16, torch.float32". Nothing: none
// that is known.
[[nodiscard]] std::optional<DType> ParameterDType(std::string_view dtypes);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_BUFFER_KEYS_H_
