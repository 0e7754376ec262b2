// Which format a directory or file has, from names and first bytes alone.
#ifndef CKPT_FORMATS_REGISTRY_INTERNAL_DETECT_H_
#define CKPT_FORMATS_REGISTRY_INTERNAL_DETECT_H_

#include "core/base/result.h"
#include "core/io/storage.h"
#include "formats/format.h"
#include "formats/registry/locate.h"

namespace ckpt {

struct DetectedFormat {
  const Format* format = nullptr;  // also where only the keys show that it is one built on this
  Path path;                       // what to open: the location, or the one file in it
};

// Errors: those of LookAtDirectory, LookAtFile and Format::recognise; kUnsupported (nothing known:
// the hint lists what was looked for).
Result<DetectedFormat> DetectFormat(Storage& storage, const CheckpointLocation& location);

}  // namespace ckpt

#endif  // CKPT_FORMATS_REGISTRY_INTERNAL_DETECT_H_
