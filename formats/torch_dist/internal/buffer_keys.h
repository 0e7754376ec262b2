// Which tensors are the buffers of a distributed optimizer: what their keys say.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_BUFFER_KEYS_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_BUFFER_KEYS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/checkpoint/index.h"
#include "core/tensor/dtype.h"
#include "core/training/rank_buffers.h"

namespace ckpt::torch_dist {

// A tensor for each field: "param", "exp_avg", ….
using Bucket = std::map<std::string, const GlobalTensor*, std::less<>>;
using Buffers = std::map<BufferId, std::map<std::int64_t, Bucket>>;

// Those with keys such as `chained_0.optimizer.distributed.dp_group_idx_1.gbuf_idx_0.dtype_(
// torch.bfloat16, torch.float32).bucket_idx_0.exp_avg`.
[[nodiscard]] Buffers FindBuffers(const CheckpointIndex& index);

// The same keys up to the field, with a dot at the end; those of what is stored beside buffers, up
// to a name such as "per_bucket_numel".
[[nodiscard]] std::string BucketKey(const BufferId& id, std::int64_t bucket);
[[nodiscard]] std::string GroupKey(const BufferId& id);

// The dtypes of a buffer's parameters and of their gradients: "torch.bfloat16, torch.float32".
// Nothing: not two that are known.
struct BufferDTypes {
  DType parameters;
  DType gradients;
};
[[nodiscard]] std::optional<BufferDTypes> ParseBufferDTypes(std::string_view dtypes);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_BUFFER_KEYS_H_
