// CheckpointWriter: ranks write one checkpoint together, beside the training, in two phases.
//
//   1. every rank writes its own items below `<target>.ckptkit-partial` and makes them durable: in files of its own, or in
//      files that several ranks fill, which rank 0 made before;
//   2. when all have, rank 0 adds the manifest and publishes the directory by one rename.
//
// A rank that fails or dies before the rename leaves nothing under the target's name.
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
#include "trainer/comm/communicator.h"

namespace ckpt::trainer {

// The same on every rank, but for what `source` has in memory.
struct WriteJob {
  ConversionPlan plan;
  std::vector<int> writers;  // parallel to plan.write.items: the rank that writes each
  std::shared_ptr<const CheckpointSource> source;
  Path target;
  StagedDirectory::Options staging = {};
  std::string tool;                           // "ckptkit 0.1.0", for the manifest
  std::optional<ManifestOrigin> origin = {};  // for the manifest
  ProgressSink* progress = nullptr;  // of what this rank writes, as phase "save"; may be null
  // On rank 0, when the target is durable; may be empty. What it returns is an error of the save.
  std::function<Status()> published = {};
};

// All calls but the destructor are collective. Thread-safety: the rank's thread.
class CheckpointWriter {
 public:
  // `storage` and `world` outlive it.
  CheckpointWriter(Storage& storage, Communicator& world) : storage_(storage), world_(world) {}
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  // Stops the writing, and nothing is published then; what all ranks have written already is.
  ~CheckpointWriter();

  // Begins to write; `job.source` must not change until it is done. REQUIRES: !busy().
  // Errors: those of StagedDirectory::Open, on rank 0; kCancelled on the others.
  Status Start(WriteJob job);
  // Goes on to the next phase where all ranks are ready for it; does not wait for writing.
  // Errors: what failed on any rank: the save is over, and nothing was published.
  Status Poll();
  // Waits until the save is done. Errors: as Poll.
  Status Finish();
  [[nodiscard]] bool busy() const { return phase_ != Phase::kIdle; }

 private:
  enum class Phase : std::uint8_t { kIdle, kWriting, kCommitting };

  // Until every rank may write: the directory is there, and in `share` are the files that several ranks fill.
  Status Open(PlanShare& share);
  // Those: rank 0 makes them, and every rank that writes into one opens it.
  Status MakeCommonFiles(std::span<const FileMaker> makers, PlanShare& share);
  Status OpenCommonFiles(std::span<const FileMaker> makers, PlanShare& share);
  // The background work of this rank in this phase, and whether it has ended.
  [[nodiscard]] bool IsReady() const;
  void Wait() const;
  // The end of a phase that has ended on every rank.
  Status Advance();
  Status EndWriting();
  Status EndCommitting();
  Status Commit(Manifest manifest);  // rank 0
  Status GiveUp(Status status);

  Storage& storage_;
  Communicator& world_;
  Phase phase_ = Phase::kIdle;
  WriteJob job_;
  std::optional<StagedDirectory> staged_;  // rank 0
  std::stop_source stop_;
  std::future<Result<ExecuteResult>> writing_;
  std::future<Status> committing_;  // rank 0
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_CHECKPOINT_CHECKPOINT_WRITER_H_
