// A safetensors file, or a directory of them.
#ifndef CKPT_FORMATS_SAFETENSORS_FORMAT_H_
#define CKPT_FORMATS_SAFETENSORS_FORMAT_H_

#include <vector>

#include "formats/format.h"

namespace ckpt::safetensors {

extern const Format kFormat;

// Whether a directory has files of the format, or an index of such.
[[nodiscard]] bool HoldsSafetensors(const DirectoryNames& names);

// How the files of a SafetensorsSource divide its tensors; nothing of another source.
[[nodiscard]] std::vector<ManifestShard> DescribeShards(const CheckpointSource& source);

}  // namespace ckpt::safetensors

#endif  // CKPT_FORMATS_SAFETENSORS_FORMAT_H_
