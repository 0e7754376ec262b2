// What another implementation computed for one batch: the file that `check` compares with.
#ifndef CKPT_TRAINER_CHECK_REFERENCE_H_
#define CKPT_TRAINER_CHECK_REFERENCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "core/tensor/shape.h"
#include "formats/registry/registry.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// A file with integer tensors `input_ids` and `labels` [batch, seq], and any of the floating-point
// tensors `loss` [], `logits` [batch, seq, vocabulary] and `grad.<name of a parameter at run
// time>`.
//
// Thread-safety: several threads may read.
class Reference {
 public:
  // Errors: those of OpenCheckpoint; kMissing (no batch, or nothing to compare), kShapeMismatch,
  // kDtypeMismatch.
  static Result<Reference> Open(Storage& storage, const Path& path);

  [[nodiscard]] std::int64_t batch() const { return batch_.batch; }
  [[nodiscard]] std::int64_t seq() const { return batch_.seq; }
  // Errors: kOutOfRange (a token or a label is outside a vocabulary of this size).
  [[nodiscard]] Status CheckVocabulary(std::int64_t vocab_size) const;

  // Sequences [begin, begin + count). In the file, a label is at its own token. In the result it is
  // at the token before it, and the last place of a sequence has no label.
  [[nodiscard]] trainer::HostMicroBatch Sequences(std::int64_t begin, std::int64_t count) const;

  [[nodiscard]] bool Has(std::string_view key) const { return Find(key) != nullptr; }
  // Null if the file has no such tensor.
  [[nodiscard]] const Dims* FindShape(std::string_view key) const;
  // Errors: kMissing, kUnsupported (not a floating-point tensor), those of reading.
  [[nodiscard]] Result<std::vector<double>> Read(std::string_view key,
                                                 std::uint64_t budget_bytes) const;
  // Without "grad.", in the order of the file.
  [[nodiscard]] const std::vector<std::string>& gradients() const { return gradients_; }
  [[nodiscard]] const Path& path() const { return checkpoint_->path; }

 private:
  explicit Reference(OpenedCheckpoint checkpoint)
      : checkpoint_(std::make_shared<const OpenedCheckpoint>(std::move(checkpoint))) {}
  [[nodiscard]] const GlobalTensor* Find(std::string_view key) const;
  Status ReadBatch();
  [[nodiscard]] Result<std::vector<std::int32_t>> ReadIds(std::string_view key, Dims& shape) const;

  std::shared_ptr<const OpenedCheckpoint> checkpoint_;
  trainer::HostMicroBatch batch_;  // as in the file
  std::vector<std::string> gradients_;
};

inline constexpr std::string_view kGradientPrefix = "grad.";

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_CHECK_REFERENCE_H_
