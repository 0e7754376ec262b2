// Which tensors of a checkpoint the user wants to be taken for a model's, and under which names.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_OFFERED_TENSORS_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_OFFERED_TENSORS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "core/checkpoint/index.h"

namespace ckpt {

// The tensors that are matched with the layout, under the names that the user wants for them.
struct Offered {
  std::vector<GlobalTensor> tensors;
  std::vector<std::uint32_t> positions;  // in the index
};

// Of `model`, by the patterns of `options`; those that are left out on request are added to
// `left_out`. Errors: kUsage (a pattern that matches nothing or has no effect; NothingIsLeft).
Result<Offered> OfferTensors(const OpenModelOptions& options, ModelSource& model);

// The keys of the offered tensors as the source has them: a user finds these there.
[[nodiscard]] std::vector<std::string> KeysInSource(const ModelSource& model,
                                                    const Offered& offered);

// Whether --only or --drop choose among the entries.
[[nodiscard]] bool HasPatterns(const OpenModelOptions& options);
// The error of patterns that leave nothing to convert; it names them. kUsage.
[[nodiscard]] Status NothingIsLeft(const OpenModelOptions& options, const ModelSource& model);

// A key without the names of modules that PyTorch's own wrappers put around others: torch.compile,
// activation checkpointing, FSDP. torch's get_state_dict does the same. No model has a module of
// such a name.
[[nodiscard]] std::string WithoutWrappers(std::string_view key);

// Takes them out of all keys. Errors: kUnsupported (two keys of the source become one).
Status RemoveWrappers(const CheckpointIndex& index, Offered& offered);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_OFFERED_TENSORS_H_
