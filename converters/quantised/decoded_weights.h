// Quantised weights of a published model, seen as the bfloat16 that they stand for.
//
//   fp8    X float8_e4m3fn [r, c] with X_scale_inv float32, bfloat16 or float16, one for each block
//          of `weight_block_size`; blocks at the ends of rows and columns may be smaller
//   mxfp4  X_blocks uint8 [..., c / 32, 16] with X_scales uint8 [..., c / 32]
#ifndef CKPT_CONVERTERS_QUANTISED_DECODED_WEIGHTS_H_
#define CKPT_CONVERTERS_QUANTISED_DECODED_WEIGHTS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/layout/value.h"

namespace ckpt {

// The member of a configuration that says how weights are quantised.
inline constexpr std::string_view kQuantizationConfig = "quantization_config";

struct DecodedWeights {
  // The weights under their keys, and no scales. Those of mxfp4 keep the key X_blocks, and have the
  // shape [..., c]: it says in which order the published file has their dims. Null if no weight is
  // stored in a way that the configuration names and that is known here.
  std::shared_ptr<const CheckpointSource> source;
  std::string method;       // "fp8"
  std::size_t weights = 0;  // how many were decoded
};

// `config` is that of the model: how the weights are stored is in its `quantization_config`. A
// method that is not known here is left to the caller, and so are weights of which none is
// quantised, whatever the configuration says.
//
// Locate decodes as much as it is asked for, in parts of some MiB, and reads as much for them.
//
// Errors, all at once: kUnsupported (the method in another form than above), kMissing (a weight
// without a scale, or the reverse; a configuration that says nothing of scales), kShapeMismatch and
// kDtypeMismatch (a scale or weight of another), kBadMetadata (a weight that the configuration
// excludes has a scale), errors of the index about these tensors.
Result<DecodedWeights> DecodeWeights(std::shared_ptr<const CheckpointSource> source,
                                     const layout::Configuration& config);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_QUANTISED_DECODED_WEIGHTS_H_
