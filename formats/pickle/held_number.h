// Tensors of one number in an object's JSON, which shows them by their digests.
#ifndef CKPT_FORMATS_PICKLE_HELD_NUMBER_H_
#define CKPT_FORMATS_PICKLE_HELD_NUMBER_H_

#include <optional>

#include "core/checkpoint/source.h"

namespace ckpt {
class JsonCursor;
}  // namespace ckpt

namespace ckpt::pickle {

// The number of the tensor that `{"shape": …, "dtype": …, "sha256": …}` is; nothing if it is not
// among `numbers`.
[[nodiscard]] std::optional<double> HeldNumberOf(const JsonCursor& tensor,
                                                 const HeldNumbers& numbers);

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_HELD_NUMBER_H_
