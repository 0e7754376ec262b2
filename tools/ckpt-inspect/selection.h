// Selects the tensors that a command works on.
#ifndef CKPT_TOOLS_CKPT_INSPECT_SELECTION_H_
#define CKPT_TOOLS_CKPT_INSPECT_SELECTION_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/checkpoint/index.h"

namespace ckpt::inspect {

// Whether `key` matches `glob` by the rule of core/base/glob.h. An empty glob matches all.
[[nodiscard]] bool MatchesGlob(const std::string& key, const std::string& glob);

// Whether a tensor belongs to the training run rather than the model, by the names that the
// frameworks use.
[[nodiscard]] bool IsTrainingState(std::string_view key);

// Sorted by the bytes of the key. The pointers point into `index`.
[[nodiscard]] std::vector<const GlobalTensor*> SelectTensors(const CheckpointIndex& index,
                                                             const std::string& glob);
[[nodiscard]] std::vector<const ObjectEntry*> SelectObjects(const CheckpointIndex& index,
                                                            const std::string& glob);

enum class Among : std::uint8_t { kTensors, kTensorsAndObjects };

// Errors: kUsage (`glob` matches no key); where it matches keys of nothing but what could not be
// read, why not.
Status CheckMatchesSome(const CheckpointIndex& index, const std::string& glob, Among among);

// All errors about keys that match and are neither tensors nor objects of the index. Entries that
// are too damaged to be listed would be missing from any answer that claims to cover all of these.
Status CheckNothingUnlisted(const CheckpointIndex& index, const std::string& glob);

// Bytes of the dense tensor. If a damaged shape overflows, the largest number.
[[nodiscard]] std::uint64_t LogicalBytes(const GlobalTensor& tensor);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_SELECTION_H_
