// Ranks as threads of one process.
#ifndef CKPT_TRAINER_COMM_THREAD_COMM_H_
#define CKPT_TRAINER_COMM_THREAD_COMM_H_

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/status.h"
#include "trainer/comm/host_group.h"

namespace ckpt::trainer {

// The world: one group per rank, which only the rank's own thread and queues use afterwards.
// `timeout`: of a call on a track (HostGroup::MakeTrack); 0: none.
std::vector<std::unique_ptr<HostGroup>> MakeThreadWorld(
    int num_ranks, std::chrono::milliseconds timeout = std::chrono::milliseconds(0));

// Runs `body(world)` on `num_ranks` threads and waits for all. A rank that fails aborts the world,
// so that the others do not hang. The process ends with exit code 3, and why on stderr, where a
// call on a track takes longer than `timeout` (0: none), or goes on for five seconds after a rank
// failed.
//
// Errors: the first real failure in order of rank, kSystem for a rank that gets no thread;
// kCancelled only if there is no other.
Status RunRanks(int num_ranks, const std::function<Status(HostGroup& world)>& body,
                std::chrono::milliseconds timeout = std::chrono::milliseconds(0));

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_THREAD_COMM_H_
