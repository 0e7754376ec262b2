// A group of one rank that belongs to no world.
#ifndef CKPT_TRAINER_COMM_INTERNAL_LONE_GROUP_H_
#define CKPT_TRAINER_COMM_INTERNAL_LONE_GROUP_H_

#include <memory>

#include "trainer/comm/host_group.h"

namespace ckpt::trainer {

// Its calls copy what is not in place.
[[nodiscard]] std::unique_ptr<HostGroup> MakeLoneGroup();

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_INTERNAL_LONE_GROUP_H_
