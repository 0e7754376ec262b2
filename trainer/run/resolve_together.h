// The configuration of a run whose ranks are processes: one of each machine reads the checkpoint's
// metadata for the others.
#ifndef CKPT_TRAINER_RUN_RESOLVE_TOGETHER_H_
#define CKPT_TRAINER_RUN_RESOLVE_TOGETHER_H_

#include <functional>

#include "core/base/result.h"
#include "core/io/shared_reads.h"
#include "core/layout/value.h"
#include "trainer/comm/host_group.h"
#include "trainer/run/run_config.h"

namespace ckpt::train {

// Calls `read` on every rank: first on one rank of each machine, then on the others of the machine,
// whose reads through `storage` are answered from what the first one read. `read` keeps its own
// errors: one that fails does not keep the others from reading for themselves. Every rank calls it.
// Errors: those of the group; what `read` throws.
Status ReadTogether(trainer::HostGroup& world, SharedReads& storage,
                    const std::function<void()>& read);

// ResolveRun in every process of a run. If one fails, it does so alone, and the others learn of it
// when they run their ranks (FailTogether). What is opened reads `storage`, which must outlive it.
// Errors: those of ResolveRun and MeetEarly.
Result<RunConfig> ResolveTogether(SharedReads& storage, const layout::Configuration& given,
                                  int num_ranks, const RunNeeds& needs);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_RESOLVE_TOGETHER_H_
