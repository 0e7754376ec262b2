// A safetensors file, or a directory of them.
#ifndef CKPT_FORMATS_SAFETENSORS_FORMAT_H_
#define CKPT_FORMATS_SAFETENSORS_FORMAT_H_

#include <span>
#include <vector>

#include "formats/format.h"

namespace ckpt::safetensors {

extern const Format kFormat;

// Whether a directory has files of the format, or an index of such.
[[nodiscard]] bool HoldsSafetensors(const DirectoryNames& names);

// Files as Transformers writes them, side files among them; files as they once were, if the request
// has them. Errors: kUsage (compression), those of PlanSafetensors.
[[nodiscard]] Result<PlannedCheckpoint> PlanWeights(WeightsRequest request);

// How the files of a SafetensorsSource divide its tensors; nothing of another source.
[[nodiscard]] std::vector<ManifestShard> DescribeShards(const CheckpointSource& source);
// `texts_of_shards`: what the headers say besides the tensors.
[[nodiscard]] std::vector<SideText> TextsOfShards(std::span<const ManifestShard> shards);

}  // namespace ckpt::safetensors

#endif  // CKPT_FORMATS_SAFETENSORS_FORMAT_H_
