// What old optimizers kept of experts whose weights were one array, with the dims of the weight.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_GROUPED_STATES_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_GROUPED_STATES_H_

#include <memory>
#include <string_view>

#include "core/base/result.h"
#include "core/checkpoint/source.h"

namespace ckpt::torch_dist {

// Whether the weight, or what an optimizer has of it, is of experts that all have one key.
[[nodiscard]] bool IsOfGroupedExperts(std::string_view key);

// The checkpoint with such states transposed; the source itself if it has none. Every reader sees
// it so, since only its own format tells these states from others.
//
// Up to Megatron-Core 0.15, GroupedMLP keeps all weights of a fc1 or a fc2 in one array, [experts,
// columns, rows]. It stores the weight as [experts, rows, columns], as other classes do, but in the
// form fully_sharded_model_space what the optimizer has of it in the array's own order
// (`sh_ten_build_fn` in transformer/moe/experts.py). A shape with its dims swapped shows that. Of
// square weights the run's arguments say it, by which Megatron-LM chooses the class; or, where
// these leave it open, the exact values, which are near to the weights in one order only. Where
// neither does, the states are among the index's problems.
//
// Does nothing to a checkpoint that it gave. Errors: those of reading, if the system did not give
// the bytes. Cost: where exact values are asked, what AreTransposed reads of the first weight that
// tells it, of eight at most.
Result<std::unique_ptr<CheckpointSource>> TurnGroupedStates(
    std::unique_ptr<CheckpointSource> source);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_GROUPED_STATES_H_
