// What Megatron's arguments in a file say about how the model is divided.
#ifndef CKPT_FORMATS_MP_RANK_INTERNAL_ARGUMENTS_H_
#define CKPT_FORMATS_MP_RANK_INTERNAL_ARGUMENTS_H_

#include <cstdint>
#include <optional>

#include "core/base/result.h"
#include "formats/mp_rank/internal/rank_directories.h"
#include "formats/torch_save/torch_save_source.h"

namespace ckpt::mp_rank {

struct Arguments {
  Sizes sizes;
  // Of experts, by how many tensor-parallel ranks they are divided.
  std::int64_t expert_tensor = 1;
  std::optional<std::int64_t> num_layers;
  std::int64_t num_experts = 0;
  // Of those, how many each expert rank has.
  [[nodiscard]] std::int64_t own_experts() const { return num_experts / sizes.expert; }
  // Expert ranks have a part of each expert, not some experts.
  bool divides_each_expert = false;
  bool is_gated = false;   // its MLPs have a gate
  bool ties_head = false;  // the last stage's output layer is a copy of the embedding
  // Layers of the last stage read the embedding, of which it has a copy.
  bool predicts_further = false;
  // Of the distributed optimizer's buckets, at how many elements one is full; nothing: never.
  std::optional<std::int64_t> bucket_elems;
  bool knows_buckets = true;       // else that number does not follow from the arguments
  bool decays_qk_norms = false;    // vectors though they are
  bool decouples_rate = false;     // embedding and head have a learning rate of their own
  bool divides_optimizer = false;  // the parts of an interleaved pipeline have several optimizers
};

// Errors: kMissing (no arguments), kUnsupported (a checkpoint of before version 3), kBadMetadata,
// those of TorchSaveSource::ReadObject.
Result<Arguments> ReadArguments(const torch_save::TorchSaveSource& file);

}  // namespace ckpt::mp_rank

#endif  // CKPT_FORMATS_MP_RANK_INTERNAL_ARGUMENTS_H_
