// Finds out what kind of data a file holds, from its first line.
#ifndef CKPT_TRAINER_DATA_DETECT_KIND_H_
#define CKPT_TRAINER_DATA_DETECT_KIND_H_

#include <string_view>

#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "trainer/data/open_source.h"

namespace ckpt::trainer {

// kIndexed if `path`.idx exists. Otherwise `path` is JSONL, and its first line decides.
//
// Errors: kNotFound (neither exists), kUsage (`path` is one of Megatron's two files instead of
// their prefix; the file has no lines), those of KindOfLine and of reading.
Result<DataKind> DetectKind(Storage& storage, const Path& path);

// The kind of a line, from its fields. `where` appears in errors.
// Errors: kUsage (the fields fit no kind, or several), kBadMetadata, kResource (not JSON, or nested
// too deeply).
Result<DataKind> KindOfLine(std::string_view line, std::string_view where);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_DETECT_KIND_H_
