// Reads JSON text as a Configuration.
#ifndef CKPT_CORE_LAYOUT_FLATTEN_JSON_H_
#define CKPT_CORE_LAYOUT_FLATTEN_JSON_H_

#include <string_view>

#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt {
class JsonCursor;
}  // namespace ckpt

namespace ckpt::layout {

// One value: an array becomes a list, an object null. Integers of more than 63 bits become floats.
Result<Value> ToValue(const JsonCursor& json);

// Members of nested objects get dotted names (`rope_parameters.rope_theta`). Arrays become lists;
// objects inside arrays become null. Integers of more than 63 bits become floats. NaN and the
// infinities are read as Python writes them. `name` (a path) appears in errors.
//
// Errors: kBadMetadata (not JSON, not an object, a duplicate key, two keys with the same flattened
// name), kResource (too large or too deep).
Result<Configuration> FlattenJson(std::string_view json, std::string_view name);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_FLATTEN_JSON_H_
