// Which ranks belong to which part of a split.
#ifndef CKPT_TRAINER_COMM_INTERNAL_SPLIT_MEMBERS_H_
#define CKPT_TRAINER_COMM_INTERNAL_SPLIT_MEMBERS_H_

#include <vector>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"

namespace ckpt::trainer {

// The ranks of `parent` that gave the caller's `color`, ordered by (`key`, rank). Every rank calls
// it. Errors: those of HostGroup::Exchange.
Result<std::vector<int>> SplitMembers(HostGroup& parent, int color, int key);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_INTERNAL_SPLIT_MEMBERS_H_
