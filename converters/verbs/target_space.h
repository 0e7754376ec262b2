// How much room the target of a conversion takes.
#ifndef CKPT_CONVERTERS_VERBS_TARGET_SPACE_H_
#define CKPT_CONVERTERS_VERBS_TARGET_SPACE_H_

#include <cstdint>
#include <string>
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

// The failure of a conversion, with a hint at what it left behind and how to go on, where it can be
// gone on with. `needed_bytes`: what the target takes in all; 0 if nobody knows in advance.
Status HowToGoOn(Status failure, const Path& target, std::uint64_t needed_bytes);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_TARGET_SPACE_H_
