#include "core/checkpoint/validate.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/warning.h"
#include "core/checkpoint/entry_map.h"
#include "core/io/storage.h"
#include "core/tensor/box.h"

namespace ckpt {
namespace {

class Validator {
 public:
  explicit Validator(const CheckpointSource& source)
      : source_(source), index_(source.index()), problems_(index_.problems()) {
    sizes_.reserve(index_.files().size());
    for (FileId file = 0; file < index_.files().size(); ++file) {
      sizes_.push_back(source_.FileSize(file));
    }
    reported_for_.resize(sizes_.size());
  }

  std::vector<Problem> Run() {
    for (const GlobalTensor& tensor : index_.tensors()) CheckTensor(tensor);
    for (const ObjectEntry& object : index_.objects()) CheckObject(object);
    for (const ObjectEntry& copy : index_.object_copies()) CheckObject(copy);
    return std::move(problems_);
  }

 private:
  void Report(Status status, const std::string& key) {
    status = std::move(status).Tensor(key);
    problems_.push_back(status.first());
  }

  void CheckTensor(const GlobalTensor& tensor) {
    if (Status status = CountBytes(tensor.shape, tensor.dtype).status(); !status.ok()) {
      return Report(std::move(status), tensor.key);
    }
    CheckFiles(tensor);
    boxes_.clear();
    bool all_inside = true;
    for (const Chunk& chunk : index_.chunks(tensor)) {
      const BoxView box(index_.offsets(chunk), index_.sizes(chunk));
      if (Status status = CheckInside(box, tensor.shape); !status.ok()) {
        Report(std::move(status).File(index_.files()[chunk.file]), tensor.key);
        all_inside = false;
      }
      boxes_.push_back(box);
    }
    if (all_inside) CheckCover(tensor);
  }

  void CheckObject(const ObjectEntry& object) {
    if (!FileIsThere(object.file, object.key)) return;
    CheckExtent(object.file, object.offset_bytes, object.size_bytes, object.key);
  }

  // At most one problem for each file and tensor: a lost file would otherwise be reported for each
  // of a million chunks.
  void CheckFiles(const GlobalTensor& tensor) {
    for (const Chunk& chunk : index_.chunks(tensor)) {
      if (sizes_[chunk.file].ok() &&
          RangeFits(chunk.offset_bytes, chunk.size_bytes, *sizes_[chunk.file])) {
        continue;
      }
      if (std::exchange(reported_for_[chunk.file], &tensor) == &tensor) continue;
      if (FileIsThere(chunk.file, tensor.key)) {
        CheckExtent(chunk.file, chunk.offset_bytes, chunk.size_bytes, tensor.key);
      }
    }
  }

  // Reports the file as missing if it does not exist.
  bool FileIsThere(FileId file, const std::string& key) {
    if (sizes_[file].ok()) return true;
    Report(Status(sizes_[file].status()).File(index_.files()[file]), key);
    return false;
  }

  // REQUIRES: the file exists.
  void CheckExtent(FileId file, std::uint64_t offset, std::uint64_t size_bytes,
                   const std::string& key) {
    const std::uint64_t size = *sizes_[file];
    if (RangeFits(offset, size_bytes, size)) return;
    const std::string where = DescribeRange(index_.files()[file], offset, size_bytes);
    const std::string actual = fmt::format("a file of {} bytes", size);
    if (!entries_) entries_.emplace(index_);
    if (entries_->LooksCutOff(file, offset, size_bytes)) {
      Report(Error(ErrorKind::kTruncated, "the file is shorter than its entries")
                 .File(where)
                 .Actual(actual)
                 .Hint("the copy is incomplete, or the save was interrupted"),
             key);
    } else {
      Report(Error(ErrorKind::kOutOfRange, "an entry lies outside its file")
                 .File(where)
                 .Actual(actual),
             key);
    }
  }

  // REQUIRES: all of `boxes_` lie inside the tensor.
  void CheckCover(const GlobalTensor& tensor) {
    const CoverProof proof = ProveCover(tensor.shape, boxes_);
    if (proof.overlap) {
      Report(Error(ErrorKind::kOverlap, "chunks share elements")
                 .Actual(fmt::format("chunks {} and {}", FormatBox(proof.overlap->first),
                                     FormatBox(proof.overlap->second))),
             tensor.key);
    }
    if (proof.missing) {
      Report(Error(ErrorKind::kCoverage, "no chunk holds a part of the tensor")
                 .Expected("all of " + FormatDims(tensor.shape))
                 .Actual("nothing for " + FormatBox(*proof.missing)),
             tensor.key);
    }
    if (proof.undecided) {
      Report(Error(ErrorKind::kResource, "chunks are too tangled to prove that they cover it")
                 .Actual(fmt::format("{} chunks", tensor.num_chunks)),
             tensor.key);
    }
    if (proof.duplicates != 0) WarnOfDuplicates(tensor);
  }

  // Saves without collectives leave replicas in the files of several ranks. The same bytes twice
  // are unusual.
  void WarnOfDuplicates(const GlobalTensor& tensor) {
    std::vector<Chunk> chunks(index_.chunks(tensor).begin(), index_.chunks(tensor).end());
    const auto id = [](const Chunk& c) {
      return std::tie(c.offsets, c.sizes, c.file, c.offset_bytes);
    };
    std::sort(chunks.begin(), chunks.end(),
              [&](const Chunk& a, const Chunk& b) { return id(a) < id(b); });
    const auto twice =
        std::adjacent_find(chunks.begin(), chunks.end(),
                           [&](const Chunk& a, const Chunk& b) { return id(a) == id(b); });
    if (twice == chunks.end()) return;
    Problem warning = Warning(ErrorKind::kOverlap, "the same chunk is listed twice",
                              index_.files()[twice->file], tensor.key);
    warning.actual = "chunk " + FormatBox(index_.box(*twice));
    problems_.push_back(std::move(warning));
  }

  const CheckpointSource& source_;
  const CheckpointIndex& index_;
  std::vector<Problem> problems_;
  std::vector<Result<std::uint64_t>> sizes_;  // by FileId
  // By FileId: the last tensor for which the file was reported.
  std::vector<const GlobalTensor*> reported_for_;
  std::optional<EntryMap> entries_;  // built when the first wrong extent is found
  std::vector<BoxView> boxes_;       // of one tensor
};

}  // namespace

std::vector<Problem> ValidateIndex(const CheckpointSource& source) {
  return Validator(source).Run();
}

}  // namespace ckpt
