// The files of all ranks as one checkpoint.
#ifndef CKPT_FORMATS_VERL_INTERNAL_SOURCE_H_
#define CKPT_FORMATS_VERL_INTERNAL_SOURCE_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/checkpoint/source.h"
#include "core/io/storage.h"
#include "core/tensor/box.h"
#include "formats/torch_save/torch_save_source.h"

namespace ckpt::verl {

// A tensor has one chunk for each box that some rank holds. Elements that several ranks hold
// (replicas, tensors that are not distributed) are read from the first; that the others are equal
// is known by the checksums of their files, or found by reading them.
//
// Thread-safety: const methods may run concurrently.
class VerlSource final : public CheckpointSource {
 public:
  // Errors: those of FindModelFiles, of TorchSaveSource::Open and of RankParts, for all files at
  // once. What concerns single tensors goes to index().problems(): kMissing (a rank has no part of
  // it), kBadMetadata (the ranks describe it differently), kShapeMismatch (a part has another size
  // than its place).
  static Result<std::unique_ptr<CheckpointSource>> Open(Storage& storage, const Path& directory);

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }
  // Errors also: kChecksum (ranks that should hold the same elements hold different ones).
  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override;
  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override;
  Status VerifyRest() const override;
  Result<std::uint64_t> FileSize(FileId file) const override;
  [[nodiscard]] Protection protection() const override;

 private:
  // A rank's part; `rank` is also its file's number.
  struct OfRank {
    std::size_t rank = 0;
    RankPart part;
  };
  // Of one tensor, from all ranks, by rank.
  using Parts = std::vector<OfRank>;

  VerlSource() = default;

  Status Collect();
  // `warning`: of what lies beside the model.
  Status BuildIndex(const std::optional<Problem>& warning);
  // Adds the tensor's chunks. Errors: what the tensor's problem is.
  Status Place(const Parts& parts, EncodingId encoding, IndexBuilder& builder);
  // Reads them the first time that a box is located.
  Status CheckReplicas(const OfRank& first) const CKPT_EXCLUDES(mutex_);

  std::vector<std::string> names_;                       // of the files, by rank
  std::vector<std::unique_ptr<TorchSaveSource>> files_;  // by rank
  std::map<std::string, Parts> tensors_;                 // by key
  // Parts that must hold what an earlier one holds, and whose checksums do not show it; by that.
  std::map<const OfRank*, std::vector<const OfRank*>> unproven_;
  CheckpointIndex index_;
  mutable Mutex mutex_;
  mutable std::set<const OfRank*> proven_ CKPT_GUARDED_BY(mutex_);  // of `unproven_`
};

}  // namespace ckpt::verl

#endif  // CKPT_FORMATS_VERL_INTERNAL_SOURCE_H_
