// Checks that no tensor is listed twice: in a header, or in the index of a repository.
#ifndef CKPT_FORMATS_SAFETENSORS_INTERNAL_DISTINCT_NAMES_H_
#define CKPT_FORMATS_SAFETENSORS_INTERNAL_DISTINCT_NAMES_H_

#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace ckpt::safetensors {

// Errors: kBadMetadata (a name occurs twice; it is the error's tensor).
Status CheckDistinctNames(std::vector<std::string_view> names);

}  // namespace ckpt::safetensors

#endif  // CKPT_FORMATS_SAFETENSORS_INTERNAL_DISTINCT_NAMES_H_
