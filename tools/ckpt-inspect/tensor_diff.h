// Reads pairs of tensors of two checkpoints side by side and says how they differ.
#ifndef CKPT_TOOLS_CKPT_INSPECT_TENSOR_DIFF_H_
#define CKPT_TOOLS_CKPT_INSPECT_TENSOR_DIFF_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "converters/verbs/comparison.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/exec/progress.h"
#include "core/io/storage.h"
#include "formats/registry/registry.h"
#include "tools/ckpt-inspect/element_diff.h"

namespace ckpt::inspect {

// A checkpoint whose bytes are compared with their checksums where it has any. What is damaged can
// be read all the same, once the damage is noted. Thread-safe.
class DiffSide {
 public:
  // What does not open as its manifest says is opened without it; then the damage is in problems().
  // Errors: those of OpenCheckpoint.
  static Result<std::unique_ptr<DiffSide>> Open(Storage& storage, const Path& path);

  [[nodiscard]] const std::shared_ptr<const OpenedCheckpoint>& opened() const { return opened_; }

  // Sees the tensors of each parameter in what an optimizer keeps, and quantised weights decoded.
  // Errors: those of SeeParameters (stored_run.h), and nothing changes then.
  Status SeeParameters();
  // Gives up checksums altogether, because of `damage`. Errors: those of OpenCheckpoint.
  Status Distrust(const Status& damage) CKPT_EXCLUDES(mutex_);
  // Notes damage, and gives the same checkpoint without checksums. Errors: those of OpenCheckpoint;
  // kIo (its tensors are others now).
  Result<const CheckpointSource*> Unproved(const Status& damage) CKPT_EXCLUDES(mutex_);

  // Damage noted so far, each finding once.
  [[nodiscard]] std::vector<Problem> problems() CKPT_EXCLUDES(mutex_);

 private:
  DiffSide(Storage& storage, Path path);

  void Note(const Status& damage) CKPT_REQUIRES(mutex_);
  Status OpenUnproved() CKPT_REQUIRES(mutex_);

  Storage* storage_;
  Path path_;
  std::unique_ptr<Storage> unproved_storage_;
  std::shared_ptr<const OpenedCheckpoint> opened_;
  bool sees_parameters_ = false;
  Mutex mutex_;
  std::shared_ptr<const OpenedCheckpoint> unproved_ CKPT_GUARDED_BY(mutex_);
  std::vector<Problem> problems_ CKPT_GUARDED_BY(mutex_);
};

// What is known of one pair.
struct TensorDiff {
  const TensorPair* pair = nullptr;  // outlived by the comparison
  bool has_same_shape = true;
  bool has_same_dtype = true;
  Status unreadable;  // of either side: then `elements` counts what was read before
  ElementDiff elements;

  [[nodiscard]] bool is_equal() const {
    return has_same_shape && has_same_dtype && unreadable.ok() && elements.num_differing == 0;
  }
};

struct TensorDiffOptions {
  Tolerance tolerance = {};
  std::uint64_t memory_budget_bytes = std::uint64_t{1} << 30;
  int threads = 1;
};

// The pairs in their order. Tensors of one shape are read to the end, whatever their dtypes; of
// others nothing is read. One thread works on each pair, in blocks.
//
// Errors: kIo and others of the system. Those of single tensors are in TensorDiff::unreadable.
Result<std::vector<TensorDiff>> DiffTensors(DiffSide& a, DiffSide& b,
                                            std::span<const TensorPair> pairs,
                                            const TensorDiffOptions& options,
                                            ProgressSink& progress);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_TENSOR_DIFF_H_
