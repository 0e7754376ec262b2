// What the files of all ranks have of the model, and what it is called in the whole model.
#ifndef CKPT_FORMATS_MP_RANK_INTERNAL_RANK_MODELS_H_
#define CKPT_FORMATS_MP_RANK_INTERNAL_RANK_MODELS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "formats/mp_rank/internal/arguments.h"
#include "formats/mp_rank/internal/rank_directories.h"
#include "formats/torch_save/rank_set.h"

namespace ckpt::mp_rank {

// How the members of a file begin that have the model, or parts of it.
inline constexpr std::string_view kModelMember = "model";

struct RankModels {
  // By the file's number, in the file's order.
  std::vector<std::vector<torch_save::RankPart>> parts;
  std::vector<std::vector<std::string>> names;  // parallel; empty: not of the model
  std::uint64_t extra_state_bytes = 0;          // of scaling states, where each rank has its own
};

// Layers and experts have their numbers in the whole model. Errors: those of RankParts and of
// LayerOffsets, of all files at once; kBadMetadata (stages of another model).
Result<RankModels> ReadModels(const torch_save::RankSet& set,
                              const std::vector<RankDirectory>& ranks, const Arguments& arguments);

}  // namespace ckpt::mp_rank

#endif  // CKPT_FORMATS_MP_RANK_INTERNAL_RANK_MODELS_H_
