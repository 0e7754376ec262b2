// The way back from object_json.h: a pickle of the value that a text describes.
#ifndef CKPT_FORMATS_PICKLE_FROM_JSON_H_
#define CKPT_FORMATS_PICKLE_FROM_JSON_H_

#include <optional>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/checkpoint/source.h"

namespace ckpt::pickle {

// A protocol-2 pickle, as torch.load reads it. `name` appears in errors. The text may come from a
// stranger: the pickle calls nothing but constructors of plain values, and of the enums in
// Megatron's arguments.
//
// Errors: kUnsupported (the text does not say all of the value: digests of tensors and arrays,
// classes that it only names), kBadMetadata (no such text), kResource.
Result<Bytes> PickleFromJson(std::string_view json, std::string_view name);

// Whether the text says all of the value, with `numbers`, which are the values of tensors of one
// number. Errors: as above.
Status CheckSaysAll(std::string_view json, std::string_view name, const HeldNumbers& numbers);

// The bytes of which such a text has the hexadecimal digits; nothing if they are none.
[[nodiscard]] std::optional<Bytes> BytesOfHex(std::string_view digits);

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_FROM_JSON_H_
