// One rank's part of training: start, steps, end.
#ifndef CKPT_TOOLS_CKPT_TRAIN_RANK_TRAIN_H_
#define CKPT_TOOLS_CKPT_TRAIN_RANK_TRAIN_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "tools/ckpt-train/run_log.h"
#include "trainer/comm/host_group.h"
#include "trainer/data/sequence_source.h"
#include "trainer/ledger/ledger.h"
#include "trainer/run/rank_session.h"
#include "trainer/run/train_loop.h"

namespace ckpt::train {

// What every rank of a process gets. Everything outlives the ranks.
struct TrainInput {
  SessionInput session;
  std::shared_ptr<const trainer::SequenceSource> data;
  std::shared_ptr<const trainer::SequenceSource> valid;  // null: no evaluation
  RunLog& log;                                           // used only by rank 0
  std::function<void()> on_started;                      // called by rank 0 before its first step
  std::function<bool()> is_stop_asked;
  bool wants_digest = false;
  bool wants_ledger = false;  // the session records
};

struct TrainedRank {
  LoopEnd end;
  std::optional<std::string> state_digest;
  std::optional<trainer::Ledger> ledger;  // of rank 0
  // What `prove` found to differ, equal on every rank. If not OK, nothing was trained.
  Status difference;
};

// Every rank of `world` calls it. Errors: those of SaveFolder, RankSession, RunLog's files and
// TrainLoop.
Result<TrainedRank> TrainOnRank(const TrainInput& input, trainer::HostGroup& world);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_RANK_TRAIN_H_
