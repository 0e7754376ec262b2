// Whether a rule of a layout table fits the logical tensors that it names.
#ifndef CKPT_CORE_LAYOUT_INTERNAL_CHECK_RULE_H_
#define CKPT_CORE_LAYOUT_INTERNAL_CHECK_RULE_H_

#include "core/base/status.h"
#include "core/layout/layout_table.h"

namespace ckpt::layout {

// Name and shape of a tensor's rule bind every axis of each logical tensor exactly once, and
// nothing else. Those of a grid of objects bind some of them. REQUIRES: the rule names only axes
// and logical tensors of `table`. Errors: kBadMetadata.
Status CheckRule(const LayoutTable& table, const TensorRule& rule);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_INTERNAL_CHECK_RULE_H_
