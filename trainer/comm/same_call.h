// Whether the ranks of a group make the same call.
#ifndef CKPT_TRAINER_COMM_SAME_CALL_H_
#define CKPT_TRAINER_COMM_SAME_CALL_H_

#include <cstdint>
#include <string_view>

#include "core/base/status.h"

namespace ckpt::trainer {

// A call as one rank makes it.
struct RankCall {
  int rank = 0;
  std::string_view name;  // a literal
  std::uint64_t size_bytes = 0;
};

// Errors: kInternal (`actual` has another name or size than `expected`).
Status CheckSameCall(const RankCall& expected, const RankCall& actual);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_SAME_CALL_H_
