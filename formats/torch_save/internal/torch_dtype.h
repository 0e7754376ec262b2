// How torch.save spells element types: as classes of storages, or as dtypes of untyped ones.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_TORCH_DTYPE_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_TORCH_DTYPE_H_

#include <optional>
#include <string_view>

#include "core/tensor/dtype.h"

namespace ckpt::torch_save {

// "FloatStorage"; empty for the types that torch keeps in an UntypedStorage (unsigned ones past
// uint8, float8, float4, complex32, bcomplex32).
[[nodiscard]] std::string_view StorageClassOf(DType dtype);

// Nothing for untyped and quantised storages.
[[nodiscard]] std::optional<DType> DTypeOfStorageClass(std::string_view class_name);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_TORCH_DTYPE_H_
