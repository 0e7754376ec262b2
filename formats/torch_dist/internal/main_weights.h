// What the optimizer keeps of weights beside their moments.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_MAIN_WEIGHTS_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_MAIN_WEIGHTS_H_

#include <map>
#include <string>

#include "core/base/result.h"
#include "core/checkpoint/source.h"

namespace ckpt::torch_dist {

// With Megatron's `use_precision_aware_optimizer`, Transformer Engine may keep the lower 16 bits
// alone of each exact weight, whose upper ones are the model's bfloat16. Megatron stores these as
// integers under the name of the exact weight, in float32. Nothing in the checkpoint says so: the
// first elements of a few weights show it.
//
// `main_weights`: keys of weights by keys of exact ones. Errors: kUnsupported, those of ReadBox.
Status CheckAreExact(const CheckpointSource& source,
                     const std::map<std::string, std::string>& main_weights);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_MAIN_WEIGHTS_H_
