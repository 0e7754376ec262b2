// What the optimizer keeps of weights beside their moments.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_MAIN_WEIGHTS_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_MAIN_WEIGHTS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/layout/value.h"
#include "core/training/run_format.h"

namespace ckpt::torch_dist {

// Compares exact weights with the model's, which are what they round to: the first and the last
// elements of each pair. Warnings (kValueMismatch) name the exact weights that round to something
// else, at most eight of them. So Megatron-Core 0.19.2 stores the embedding that pipeline stages
// share, if its distributed optimizer is fully_reshardable. Weights may have been rounded to
// bfloat16 or float16 before they got their dtype. Those of other dtypes than these and float32,
// those beside scales, and tensors that cannot be read are not compared: who takes one says why it
// cannot be read.
//
// With Megatron's `use_precision_aware_optimizer`, Transformer Engine may keep the lower 16 bits
// alone of each exact weight, whose upper ones are the model's bfloat16. Megatron stores these as
// integers under the name of the exact weight, in float32. Nothing in the checkpoint says so: no
// exact weight holds anything else. They are an error.
//
// `main_weights`: keys of weights by keys of exact ones. Errors: kUnsupported.
//
// Cost: a few small reads for each pair, of at most 4096 pairs. Most items carry a checksum and are
// then read whole. So small items come before large ones, until 64 MiB are read; for kWhole a GiB
// or a sixteenth of all weights, and the embedding in any case.
Result<std::vector<Problem>> CheckAreExact(const CheckpointSource& source,
                                           const std::map<std::string, std::string>& main_weights,
                                           RunDetail detail);

// Whether the exact values of square matrices lie with their last two dims swapped: how near they
// are to the weights in either order, in the first 64 rows and columns of the first matrix. Nothing
// if that does not tell, as with zeros, or if the tensors cannot be compared or are damaged.
// REQUIRES: both are of `source`'s index. Errors: those of reading, if the system did not give the
// bytes. Cost: the items that hold these rows; those with a checksum are read whole.
Result<std::optional<bool>> AreTransposed(const CheckpointSource& source, const GlobalTensor& exact,
                                          const GlobalTensor& weight);

// Whether exact weights round to the model's in a run of these arguments. Weights of 8 or 4 bits
// are stored in a wider dtype, as what they were computed with; and an optimizer that keeps float16
// rounds the exact weights themselves.
[[nodiscard]] bool RoundToWeights(const layout::Configuration& args);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_MAIN_WEIGHTS_H_
