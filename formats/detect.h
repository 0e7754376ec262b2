// Which format a directory or file has, from names and first bytes alone (docs/formats, "Detecting
// a layout").
#ifndef CKPT_FORMATS_DETECT_H_
#define CKPT_FORMATS_DETECT_H_

#include <string>

#include "core/base/result.h"
#include "core/checkpoint/index.h"
#include "core/io/storage.h"
#include "formats/locate.h"

namespace ckpt {

struct DetectedFormat {
  std::string
      format;  // a name of FormatNames(); "dcp" also for what only its keys show to be fsdp_dtensor
  Path path;   // what to open: the location, or the one file in it
};

// Errors: kIncomplete (an interrupted save), kUnsupported (a known layout that this build does not read, or nothing
//         known: then the hint lists what was looked for), kTruncated (an empty file), kBadMetadata, kIo.
Result<DetectedFormat> DetectFormat(Storage& storage, const CheckpointLocation& location);

// Whether a DCP checkpoint has the keys of Megatron-FSDP.
[[nodiscard]] bool HasFsdpDtensorKeys(const CheckpointIndex& index);

}  // namespace ckpt

#endif  // CKPT_FORMATS_DETECT_H_
