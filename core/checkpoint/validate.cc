#include "core/checkpoint/validate.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/io/storage.h"
#include "core/tensor/box.h"

namespace ckpt {
namespace {

// Bytes of a file that an entry claims.
struct Extent {
  std::uint64_t offset_bytes;
  std::uint64_t size_bytes;

  friend bool operator==(const Extent&, const Extent&) = default;
};

class Validator {
 public:
  explicit Validator(const CheckpointSource& source)
      : source_(source), index_(source.index()), problems_(index_.problems()) {
    sizes_.reserve(index_.files().size());
    for (FileId file = 0; file < index_.files().size(); ++file) {
      sizes_.push_back(source_.FileSize(file));
    }
  }

  std::vector<Problem> Run() {
    for (const GlobalTensor& tensor : index_.tensors()) CheckTensor(tensor);
    for (const ObjectEntry& object : index_.objects()) {
      if (FileIsThere(object.file, object.key)) {
        CheckExtent(object.file, {object.offset_bytes, object.size_bytes}, object.key);
      }
    }
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

  // One problem a file at most: a lost file would otherwise be reported for each of a million
  // chunks.
  void CheckFiles(const GlobalTensor& tensor) {
    reported_.clear();
    for (const Chunk& chunk : index_.chunks(tensor)) {
      if (sizes_[chunk.file].ok() &&
          RangeFits(chunk.offset_bytes, chunk.size_bytes, *sizes_[chunk.file])) {
        continue;
      }
      if (std::find(reported_.begin(), reported_.end(), chunk.file) != reported_.end()) continue;
      reported_.push_back(chunk.file);
      if (FileIsThere(chunk.file, tensor.key)) {
        CheckExtent(chunk.file, {chunk.offset_bytes, chunk.size_bytes}, tensor.key);
      }
    }
  }

  // Reports the file as missing if it is.
  bool FileIsThere(FileId file, const std::string& key) {
    if (sizes_[file].ok()) return true;
    Report(Status(sizes_[file].status()).File(index_.files()[file]), key);
    return false;
  }

  // REQUIRES: the file is there.
  void CheckExtent(FileId file, const Extent& extent, const std::string& key) {
    const std::uint64_t size = *sizes_[file];
    if (RangeFits(extent.offset_bytes, extent.size_bytes, size)) return;
    const std::string where =
        DescribeRange(index_.files()[file], extent.offset_bytes, extent.size_bytes);
    const std::string actual = fmt::format("a file of {} bytes", size);
    if (LaidEndToEnd(file)) {
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

  // Whether the file's entries follow each other without gap or overlap, as writers lay them. Then
  // it is the file that is wrong, not the entry that reaches past its end.
  bool LaidEndToEnd(FileId file) {
    if (extents_.empty()) CollectExtents();
    if (laid_end_to_end_[file]) return *laid_end_to_end_[file];
    std::vector<Extent>& extents = extents_[file];
    std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
      return std::tie(a.offset_bytes, a.size_bytes) < std::tie(b.offset_bytes, b.size_bytes);
    });
    extents.erase(std::unique(extents.begin(), extents.end()), extents.end());
    bool laid = true;
    for (std::size_t i = 1; i < extents.size() && laid; ++i) {
      std::uint64_t end = 0;
      laid = CheckedAdd(extents[i - 1].offset_bytes, extents[i - 1].size_bytes, &end) &&
             extents[i].offset_bytes == end;
    }
    laid_end_to_end_[file] = laid;
    return laid;
  }

  void CollectExtents() {
    extents_.resize(sizes_.size());
    laid_end_to_end_.resize(sizes_.size());
    for (const Chunk& chunk : index_.chunks()) {
      extents_[chunk.file].push_back({chunk.offset_bytes, chunk.size_bytes});
    }
    for (const ObjectEntry& object : index_.objects()) {
      extents_[object.file].push_back({object.offset_bytes, object.size_bytes});
    }
  }

  // REQUIRES: every one of `boxes_` lies inside the tensor.
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

  // Replicas in files of different ranks are how saves without collectives look; the same box twice
  // in one file is not.
  void WarnOfDuplicates(const GlobalTensor& tensor) {
    std::vector<Chunk> chunks(index_.chunks(tensor).begin(), index_.chunks(tensor).end());
    const auto id = [](const Chunk& c) { return std::tie(c.offsets, c.sizes, c.file); };
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
  // By FileId; filled when the first wrong extent is found.
  std::vector<std::vector<Extent>> extents_;
  std::vector<std::optional<bool>> laid_end_to_end_;
  // Scratch of one tensor.
  std::vector<BoxView> boxes_;
  std::vector<FileId> reported_;
};

}  // namespace

std::vector<Problem> ValidateIndex(const CheckpointSource& source) {
  return Validator(source).Run();
}

}  // namespace ckpt
