// The file `distrib_optim.pt` of a rank: what Megatron's distributed optimizer keeps, in buffers.
#ifndef CKPT_FORMATS_MP_RANK_INTERNAL_OPTIMIZER_BUFFERS_H_
#define CKPT_FORMATS_MP_RANK_INTERNAL_OPTIMIZER_BUFFERS_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "formats/mp_rank/internal/arguments.h"
#include "formats/mp_rank/internal/parameters.h"
#include "formats/torch_save/torch_save_source.h"

namespace ckpt::mp_rank {

inline constexpr std::string_view kBuffersFile = "distrib_optim.pt";

// Cuts the buffers into the states of single parameters. A rank may have only the optimizer of
// experts, when another rank saves that of all other parameters.
//
// Errors: those of RankParts; kUnsupported (buckets of no known size, buffers of FP8 weights,
// other optimizers than these arguments ask for, buffers of another size than the parameters
// together), kBadMetadata.
Result<std::vector<ParameterState>> ReadBuffers(const torch_save::TorchSaveSource& file,
                                                std::span<const Parameter> parameters,
                                                const Arguments& arguments, std::int64_t stage);

}  // namespace ckpt::mp_rank

#endif  // CKPT_FORMATS_MP_RANK_INTERNAL_OPTIMIZER_BUFFERS_H_
