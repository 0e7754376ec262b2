// What ranks that saved alone stored under a key beside what a conversion takes.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_LOST_COPIES_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_LOST_COPIES_H_

#include <vector>

#include "converters/verbs/convert.h"
#include "core/base/result.h"
#include "core/base/status.h"

namespace ckpt {

struct LostCopies {
  std::vector<LeftOutEntry> left_out;  // every copy that differs: "p (copy 2)"
  std::vector<Problem> warnings;       // one for each key; also of what cannot be compared
};

// Of the entries that are not left out anyway. Nothing, and nothing is read, unless the source says
// that ranks saved alone. Errors: those of the system.
Result<LostCopies> FindLostCopies(const PreparedConversion& prepared,
                                  const ConvertOptions& options);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_LOST_COPIES_H_
