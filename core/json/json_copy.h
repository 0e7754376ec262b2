// Writes a part of a parsed document into another one.
#ifndef CKPT_CORE_JSON_JSON_COPY_H_
#define CKPT_CORE_JSON_JSON_COPY_H_

#include "core/base/result.h"
#include "core/json/json_reader.h"
#include "core/json/json_writer.h"

namespace ckpt {

// Appends `value`, with its members in their order. Errors: those of JsonCursor, for a value that
// has no text of its kind.
Status CopyJson(const JsonCursor& value, JsonWriter& json);

}  // namespace ckpt

#endif  // CKPT_CORE_JSON_JSON_COPY_H_
