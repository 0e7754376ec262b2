// How much room the target of a conversion takes.
#ifndef CKPT_CONVERTERS_VERBS_TARGET_SPACE_H_
#define CKPT_CONVERTERS_VERBS_TARGET_SPACE_H_

#include <cstdint>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"

namespace ckpt {

// Every file that `plan` writes, side files included, with its size. Of a compressed plan sizes are
// those without tensors.
Result<std::vector<ManifestFile>> PlannedFiles(Storage& storage, const WritePlan& plan);

// Bytes of `files` and of their parity files, one for every `parity_group` of them; 0: none.
[[nodiscard]] std::uint64_t BytesWithParity(const std::vector<ManifestFile>& files,
                                            std::size_t parity_group);

// Adds to a failure that can be resumed a hint: what the conversion left, and how to resume it.
// `needed_bytes`: of the whole target; 0 if it is not known in advance.
Status HowToResume(Status failure, const Path& target, std::uint64_t needed_bytes);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_TARGET_SPACE_H_
