// CheckpointWriter: the ranks write one checkpoint together, in two phases, while training goes on.
//
//   1. every rank writes its own items below `<target>.ckptkit-partial` and makes them durable,
//      either in its own files, or in files that several ranks fill and that rank 0 has made;
//   2. when all ranks have done so, rank 0 adds the manifest and publishes the directory by one
//      rename.
//
// If a rank fails or dies before the rename, nothing appears under the target's name.
#ifndef CKPT_TRAINER_CHECKPOINT_CHECKPOINT_WRITER_H_
#define CKPT_TRAINER_CHECKPOINT_CHECKPOINT_WRITER_H_

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/exec/executor.h"
#include "core/exec/plan_share.h"
#include "core/io/staged_directory.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"
#include "core/plan/conversion_plan.h"
#include "trainer/comm/host_group.h"

namespace ckpt::trainer {

// Equal on every rank, except for the contents of `source` and what is said.
struct WriteJob {
  ConversionPlan plan;
  std::vector<int> writers;  // parallel to plan.write.items: the rank that writes each
  std::shared_ptr<const CheckpointSource> source;
  Path target;
  StagedDirectory::Options staging = {};
  int threads = 1;                            // that write, on this rank; others may have more
  std::string tool;                           // "ckptkit 0.1.0", for the manifest
  std::optional<ManifestOrigin> origin = {};  // for the manifest
  ProgressSink* progress = nullptr;  // of what this rank writes, as phase "save"; may be null
  // Called on rank 0 before the target gets its name, with the directory that holds the files of
  // the plan; may be empty. If it returns an error, nothing is published.
  std::function<Status(const Path& directory, const WritePlan& plan)> prove = {};
  // Called on rank 0 when the target is durable; may be empty. If it returns an error, the save
  // fails with it.
  std::function<Status()> published = {};
};

// All calls except the destructor are collective. Thread-safety: the rank's thread.
class CheckpointWriter {
 public:
  // `storage` and `world` outlive it.
  CheckpointWriter(Storage& storage, HostGroup& world) : storage_(storage), world_(world) {}
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  // Stops this rank's writing; nothing is published then. But a checkpoint that all ranks have
  // written already is published.
  ~CheckpointWriter();

  // Begins to write; `job.source` must not change until it is done. REQUIRES: !busy().
  // Errors: those of StagedDirectory::Open, on rank 0; kCancelled on the others.
  Status Start(WriteJob job);
  // Starts the next phase when all ranks are ready for it. Does not wait for writing.
  // Errors: what failed on any rank. The save has then ended. Nothing was published, unless it
  // was `published` that failed.
  Status Poll();
  // Waits until the save is done. Errors: as Poll.
  Status Finish();
  [[nodiscard]] bool busy() const { return phase_ != Phase::kIdle; }

 private:
  enum class Phase : std::uint8_t { kIdle, kWriting, kCommitting };

  // Prepares the writing of every rank: makes the directory, and opens in `share` the files that
  // several ranks fill.
  Status Open(PlanShare& share);
  // Rank 0 makes those files, and every rank that writes into one opens it.
  Status MakeCommonFiles(std::span<const FileMaker> makers, PlanShare& share);
  Status OpenCommonFiles(std::span<const FileMaker> makers, PlanShare& share);
  // Whether this rank's background work of this phase has ended.
  [[nodiscard]] bool IsReady() const;
  void Wait() const;
  // Completes a phase that has ended on every rank.
  Status Advance();
  Status EndWriting();
  Status EndCommitting();
  Status Commit(Manifest manifest);  // rank 0
  Status GiveUp(Status status);

  Storage& storage_;
  HostGroup& world_;
  Phase phase_ = Phase::kIdle;
  WriteJob job_;
  std::optional<StagedDirectory> staged_;  // rank 0
  std::stop_source stop_;
  std::future<Result<ExecuteResult>> writing_;
  std::future<Status> committing_;  // rank 0
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_CHECKPOINT_CHECKPOINT_WRITER_H_
