// The error of a pattern over keys that matches no key. Accepting such a pattern in silence would
// do nothing.
#ifndef CKPT_CORE_CHECKPOINT_NO_MATCH_H_
#define CKPT_CORE_CHECKPOINT_NO_MATCH_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/checkpoint/index.h"

namespace ckpt {

// The hint where no key is near.
inline constexpr std::string_view kListKeys = "a list of the checkpoint's keys shows what there is";

// kUsage. `option` is what the caller calls the pattern; the hint names the nearest of `keys`, or
// is kListKeys.
[[nodiscard]] Status NoKeyMatches(std::string_view option, std::string_view pattern,
                                  std::span<const std::string> keys);

// For patterns over all entries: the keys of the tensors, then those of the objects.
[[nodiscard]] std::vector<std::string> KeysOfEntries(const CheckpointIndex& index);

// NoKeyMatches for the keys of the index's tensors.
[[nodiscard]] Status NoTensorMatches(std::string_view option, std::string_view pattern,
                                     const CheckpointIndex& index);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_NO_MATCH_H_
