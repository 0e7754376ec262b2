// What a file of data holds, as its first line tells.
#ifndef CKPT_TRAINER_DATA_DETECT_KIND_H_
#define CKPT_TRAINER_DATA_DETECT_KIND_H_

#include <string_view>

#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "trainer/data/open_source.h"

namespace ckpt::trainer {

// kIndexed where `path`.idx exists; else `path` is JSONL, and of the kind of its first line.
//
// Errors: kNotFound (neither is there), kUsage (one of Megatron's two files instead of their prefix, no line), those of
//         KindOfLine and of reading.
Result<DataKind> DetectKind(Storage& storage, const Path& path);

// The kind of a line by its fields. `where` appears in errors.
// Errors: kUsage (the fields of no kind, or of several), kBadMetadata, kResource (not JSON, or too deep).
Result<DataKind> KindOfLine(std::string_view line, std::string_view where);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_DETECT_KIND_H_
