// A torch.save file, or files of it that an index joins.
#ifndef CKPT_FORMATS_TORCH_SAVE_FORMAT_H_
#define CKPT_FORMATS_TORCH_SAVE_FORMAT_H_

#include <optional>

#include "core/base/result.h"
#include "core/io/path.h"
#include "formats/format.h"
#include "formats/place.h"

namespace ckpt::torch_save {

extern const Format kFormat;

// Format::recognise.
Result<std::optional<Path>> Recognise(const Place& place);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_FORMAT_H_
