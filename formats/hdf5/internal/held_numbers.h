// Numbers that stand inside an object as tensors, as the text of an attribute: a JSON array of
// pairs, `[["int64", 3.0]]`.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_HELD_NUMBERS_H_
#define CKPT_FORMATS_HDF5_INTERNAL_HELD_NUMBERS_H_

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/checkpoint/source.h"

namespace ckpt::hdf5 {

// Without those that are not finite, which JSON does not have.
[[nodiscard]] std::string EncodeNumbers(const HeldNumbers& numbers);

// The way back. The digests are those of the numbers: a text that was damaged fits no tensor of the
// object. Errors: kBadMetadata.
Result<HeldNumbers> ParseNumbers(std::string_view text);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_HELD_NUMBERS_H_
