#include "formats/safetensors/internal/distinct_names.h"

#include <algorithm>

namespace ckpt::safetensors {

Status CheckDistinctNames(std::vector<std::string_view> names) {
  // Writers sort names, mostly.
  if (!std::ranges::is_sorted(names)) std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice == names.end()) return OkStatus();
  return Error(ErrorKind::kBadMetadata, "tensor is listed twice").Tensor(*twice);
}

}  // namespace ckpt::safetensors
