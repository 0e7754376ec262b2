// Options that are refused because of what source and target are.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_CHECK_OPTIONS_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_CHECK_OPTIONS_H_

#include "converters/verbs/convert.h"
#include "core/base/status.h"

namespace ckpt {

// What a target that shows the source's tensors cannot do with them. Errors: kUsage.
Status CheckLinkOptions(const ConvertOptions& options, const Target& to);

// Where tensors keep the source's keys, nothing says which of them are the model's weights:
// whatever is about these is refused. Errors: kUsage.
Status CheckOptionsAsStored(const ConvertOptions& options, const PreparedConversion& prepared);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_CHECK_OPTIONS_H_
