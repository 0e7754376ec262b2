// What the optimizers of all ranks keep, for the parameters of their files.
#ifndef CKPT_FORMATS_MP_RANK_INTERNAL_OPTIMIZER_H_
#define CKPT_FORMATS_MP_RANK_INTERNAL_OPTIMIZER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/io/storage.h"
#include "formats/mp_rank/internal/arguments.h"
#include "formats/mp_rank/internal/rank_directories.h"
#include "formats/torch_save/rank_set.h"

namespace ckpt::mp_rank {

// A member of every rank's file that is of this rank alone.
inline constexpr std::string_view kRandomMember = "rng_state";

// Of one rank's parameter.
struct OptimizerPart {
  std::size_t rank = 0;      // the number of the rank's file in the set
  std::size_t position = 0;  // of the parameter among the rank's parts of the model
  std::string field;         // "param" (its exact value), "exp_avg", …
  std::size_t file = 0;      // that has it: of the set, and behind these of `files`
  torch_save::RebuiltTensor local;
};

// Those of a distributed optimizer.
struct BufferFiles {
  std::vector<std::optional<std::string>> names;  // of the ranks' files; nothing: it has none
  torch_save::RankSet files;                      // those that there are, in the order of the ranks
};

// `directory` has the directories of `ranks`. Errors: those of OpenRankFiles and of Storage::Stat.
Result<BufferFiles> OpenBufferFiles(Storage& storage, const Path& directory,
                                    const std::vector<RankDirectory>& ranks);

struct OptimizerState {
  std::vector<OptimizerPart> parts;
  torch_save::RankSet files;  // those beside the models' in which some parts lie
  // Arguments, progress and groups as Megatron-Core's common state has them.
  torch_save::MakeObject common;
};

// `parts`: the model's, of every file of the set. `buffers`: those of `ranks`.
//
// Errors: those of ReadBuffers, ReadGroupedStates and RenderGroups; kUnsupported (vectors that
// decay, parameters that were updated unequally often), kMissing (the ranks saved no optimizer, or
// not all of it), kValueMismatch (what the optimizer keeps as a weight's exact value is of another
// one).
Result<OptimizerState> ReadOptimizer(BufferFiles buffers, const torch_save::RankSet& set,
                                     const std::vector<RankDirectory>& ranks,
                                     const std::vector<std::vector<torch_save::RankPart>>& parts,
                                     const Arguments& arguments);

}  // namespace ckpt::mp_rank

#endif  // CKPT_FORMATS_MP_RANK_INTERNAL_OPTIMIZER_H_
