// Plain values as the pickles that Megatron reads.
#ifndef CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_PLAIN_PICKLE_H_
#define CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_PLAIN_PICKLE_H_

#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/layout/value.h"

namespace ckpt::fsdp_dtensor {

// null is None; a list is a list.
[[nodiscard]] Bytes PickleValue(const layout::Value& value);

// An `argparse.Namespace`.
[[nodiscard]] Bytes PickleNamespace(
    const std::vector<std::pair<std::string, layout::Value>>& members);

}  // namespace ckpt::fsdp_dtensor

#endif  // CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_PLAIN_PICKLE_H_
