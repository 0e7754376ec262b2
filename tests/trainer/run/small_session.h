// Ranks of a small run whose state is set, not trained: for tests of what is saved and loaded.
#ifndef CKPT_TESTS_TRAINER_RUN_SMALL_SESSION_H_
#define CKPT_TESTS_TRAINER_RUN_SMALL_SESSION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/layout/value.h"
#include "trainer/comm/host_group.h"
#include "trainer/run/rank_session.h"
#include "trainer/run/run_config.h"

namespace ckpt::testing {

// One layer of 8 features: states of a few KiB.
layout::Configuration TinySettings();
// `settings`, and over them `more`.
layout::Configuration With(layout::Configuration settings, const layout::Configuration& more);

// A run of `settings` on threads, from what `storage` holds: the settings of a checkpoint in `load`
// come in as in any run.
class SmallSessions {
 public:
  using Body = std::function<Status(train::RankSession& session, trainer::HostGroup& world)>;

  // Errors: those of ResolveRun.
  static Result<SmallSessions> Create(Storage& storage, const layout::Configuration& settings,
                                      int ranks);

  // Each rank's way to the disk. Default: the storage.
  std::function<Storage&(int rank)> storage_of = nullptr;
  // Whether saves go on in the background, whatever the settings say.
  void set_async_save(bool is_async) { checkpoints_.async_save = is_async; }

  // Runs `body` once a rank. Errors: those of RunRanks.
  Status Run(const Body& body);
  // The same as rank of a world from elsewhere. Every rank calls it.
  Status RunAsRank(trainer::HostGroup& world, const Body& body);

  [[nodiscard]] const train::RunConfig& run() const { return run_; }
  // What rank 0 told.
  [[nodiscard]] const std::vector<std::string>& notices() const { return notices_; }

 private:
  explicit SmallSessions(Storage& storage) : storage_(&storage) {}

  Storage* storage_;
  train::RunConfig run_;
  train::CheckpointSettings checkpoints_;
  std::vector<std::string> notices_;
};

// Saves state number `state` (SetState) as iteration `iteration`. Every rank calls it.
Status SaveState(train::RankSession& session, std::uint64_t state, std::int64_t iteration);
// Compares weights, buffers and moments with those of state number `state`, bit for bit.
// Errors: kValueMismatch.
Status CheckState(trainer::RankTrainer& trainer, std::uint64_t state);

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_RUN_SMALL_SESSION_H_
