// Plans the files of a safetensors checkpoint.
#ifndef CKPT_FORMATS_SAFETENSORS_INTERNAL_WRITER_H_
#define CKPT_FORMATS_SAFETENSORS_INTERNAL_WRITER_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "formats/safetensors/header.h"
#include "formats/safetensors/source.h"

namespace ckpt::safetensors {

struct WriterOptions {
  // The files to write, as `SafetensorsSource::shards` or a manifest gives them; headers are
  // written in the canonical form. Empty: tensors are packed in key order, and named as
  // transformers does.
  std::vector<ShardLayout> shards = {};

  // Packing only. So many files of about the same size, or one a tensor if there are fewer; 0: as
  // `max_shard_bytes` says.
  int files = 0;
  // Packing only. A tensor is never split; a larger one gets a file of its own. Default: the hub's
  // 5 GB.
  std::uint64_t max_shard_bytes = 5'000'000'000;
  // Packing only. transformers refuses files that do not say "pt".
  TextPairs metadata = {{"format", "pt"}};

  // What files are called before their numbers, and their index before its ending.
  std::string stem = "model";

  // Whether to write an index when there are several files. A caller that carries the original
  // index says no.
  bool write_index = true;
};

// One contiguous item per tensor, headers and index as literals.
//
// Errors, all of them at once: kUnsupported (a dtype without a name in the format), kAlreadyExists
// (a key or file name twice), kMissing (`shards` names a tensor that is not in `tensors`),
// kUnmapped (`tensors` has one that no shard names), kUnsafePath, kResource (a header past the
// format's limit).
Result<WritePlan> PlanSafetensors(std::vector<TargetTensor> tensors, const WriterOptions& options);

// Key order in which numbers inside names count as numbers: layers.2 before layers.10.
[[nodiscard]] bool NaturallyLess(std::string_view a, std::string_view b);

}  // namespace ckpt::safetensors

#endif  // CKPT_FORMATS_SAFETENSORS_INTERNAL_WRITER_H_
