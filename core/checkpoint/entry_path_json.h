// Places of entries in a nested object (entry_paths.h) as JSON.
#ifndef CKPT_CORE_CHECKPOINT_ENTRY_PATH_JSON_H_
#define CKPT_CORE_CHECKPOINT_ENTRY_PATH_JSON_H_

#include <string>

#include "core/base/result.h"
#include "core/checkpoint/entry_paths.h"
#include "core/json/json_reader.h"
#include "core/json/json_writer.h"

namespace ckpt {

// Whether its keys can be written: JSON is UTF-8.
[[nodiscard]] bool HasJson(const EntryPath& path);

// ["optim", {"key": 7}, 0]: a key of a mapping is a text, or an integer, a boolean or null in an
// object, and an integer alone is a position in a list. REQUIRES: HasJson.
void WriteEntryPath(const EntryPath& path, JsonWriter& json);
[[nodiscard]] std::string FormatEntryPath(const EntryPath& path);

// Errors: kBadMetadata.
Result<EntryPath> ReadEntryPath(const JsonCursor& json);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_ENTRY_PATH_JSON_H_
