// Buffers of two runs' optimizers, compared by the parameters that lie in them.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_COMPARE_BUFFERS_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_COMPARE_BUFFERS_H_

#include <memory>

#include "converters/verbs/comparison.h"
#include "converters/verbs/internal/pair_models.h"
#include "core/base/result.h"
#include "formats/registry/registry.h"

namespace ckpt {

// Replaces buffers in the tensors of both sides, which have the same keys, by a tensor for each
// parameter and moment, read from where it lies, and one for each copy that other ranks have of it:
// "optimizer.state.exp_avg.decoder.final_layernorm.weight (copy 2)". A copy that one side lacks is
// the first one there. So what lies between parameters takes no part.
//
// Where one side's values do not say what lies where, and its buffers are as large as the other's,
// they are taken to be laid out like these. Otherwise both are left as they are. `comparison` says
// which. Errors: kChecksum (what says what lies where).
Status ReplaceBuffers(const std::shared_ptr<const OpenedCheckpoint>& a,
                      const std::shared_ptr<const OpenedCheckpoint>& b, TensorsByKey& tensors_a,
                      TensorsByKey& tensors_b, Comparison& comparison);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_COMPARE_BUFFERS_H_
