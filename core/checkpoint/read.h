// Reads tensors: copies boxes of a global tensor into memory, whatever chunks cover them.
#ifndef CKPT_CORE_CHECKPOINT_READ_H_
#define CKPT_CORE_CHECKPOINT_READ_H_

#include <cstdint>
#include <functional>
#include <list>
#include <unordered_map>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/base/scratch.h"
#include "core/checkpoint/source.h"
#include "core/tensor/strided_copy.h"

namespace ckpt {

// What is read of a file at once, and the copies that it serves: `num_ranges` ranges of
// `range_bytes`, the first at `offset_bytes`, each `range_step` bytes behind the one before. The
// source side of the copies counts from the first byte of the first range, as if all lay one behind
// the other.
struct FileRead {
  std::uint64_t offset_bytes = 0;
  std::uint64_t range_bytes = 0;
  std::int64_t num_ranges = 1;
  std::int64_t range_step = 0;
  StridedCopy copy;

  [[nodiscard]] std::uint64_t SizeBytes() const {
    return static_cast<std::uint64_t>(num_ranges) * range_bytes;
  }
};

// The reads that perform `copy`, in order: runs that lie within 64 KiB of each other share one
// range, and elements that become neighbours in the target share one read, of at most
// `scratch_bytes`. A pure function: what Gatherer does, and what a plan counts.
Status PlanReads(const StridedCopy& copy, std::uint64_t scratch_bytes,
                 const std::function<Status(const FileRead&)>& visit);

// How many bytes those reads have together, without making them.
[[nodiscard]] std::uint64_t BytesOfReads(StridedCopy copy, std::uint64_t scratch_bytes);

// Reads file bytes by strided copies and joins reads of ranges that are close together. For one
// thread.
class Gatherer {
 public:
  // `scratch_bytes` bounds the memory for reads that are not contiguous on both sides.
  explicit Gatherer(std::uint64_t scratch_bytes);
  // What it takes if `asked` are given: some hundred KiB at least, and at most what a cache holds
  // until all copies are made.
  [[nodiscard]] static std::uint64_t ScratchBytes(std::uint64_t asked);

  // Performs `copy` from `file` into `out`. Runs that lie within 64 KiB of each other share one
  // read. REQUIRES: the destination side of `copy` lies in `out`. Errors: kTruncated, kIo.
  Status Gather(const ReadableFile& file, const StridedCopy& copy, MutableByteSpan out);

  // Bytes requested from files so far. Divided by the bytes delivered, this is the read
  // amplification.
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  std::uint64_t scratch_bytes_;
  Scratch scratch_;
  std::uint64_t bytes_read_ = 0;
};

// What a reader does with chunks.
enum class ChunkUse : std::uint8_t {
  kAny,      // CheckpointSource::Locate
  kToStream  // CheckpointSource::LocateToStream
};

// Remembers where recently used chunks of a source lie. For one thread.
class LocatedChunks {
 public:
  // Decoded items of all tensors together stay within `budget_bytes` (but at least one item).
  // `use`: whether all of each chunk is read before any of it is used.
  LocatedChunks(const CheckpointSource& source, std::uint64_t budget_bytes,
                ChunkUse use = ChunkUse::kAny)
      : source_(&source), budget_bytes_(budget_bytes), use_(use) {}

  [[nodiscard]] const CheckpointSource& source() const { return *source_; }

  // Valid until the next call. `chunk` is one of `tensor`'s. Errors: those of
  // CheckpointSource::Locate.
  Result<const StoredArray*> Locate(const GlobalTensor& tensor, const Chunk& chunk);
  void Clear();

 private:
  struct Located {
    const Chunk* chunk = nullptr;
    StoredArray array;
  };

  const CheckpointSource* source_;
  std::uint64_t budget_bytes_;
  ChunkUse use_;
  std::list<Located> recent_;  // most recent first
  std::unordered_map<const Chunk*, std::list<Located>::iterator> by_chunk_;
  std::uint64_t resident_bytes_ = 0;  // sum over `recent_`
};

// Reads boxes of one tensor. For one thread.
class TensorReader {
 public:
  // `copy`: of boxes that are stored several times; the first where there are fewer. REQUIRES:
  // `tensor` (one of the index of `chunks`' source), `gatherer` and `chunks` outlive this.
  TensorReader(const GlobalTensor& tensor, Gatherer& gatherer, LocatedChunks& chunks,
               std::size_t copy = 0)
      : tensor_(&tensor), gatherer_(&gatherer), chunks_(&chunks), copy_(copy) {}

  [[nodiscard]] const GlobalTensor& tensor() const { return *tensor_; }

  // Copies `box` into `out` in C order, without converting.
  // REQUIRES: `box` lies inside the shape; out.size() == bytes of `box`.
  // Errors: kCoverage (no chunk holds part of the box) and those of CheckpointSource::Locate.
  Status Read(const Box& box, MutableByteSpan out);

  // Copies `box` into the array that starts at `out` + `dst_offset` with `dst_strides` (elements).
  Status ReadInto(const Box& box, MutableByteSpan out, std::uint64_t dst_offset,
                  DimsView dst_strides);

  // Copies a part of one chunk. The source side of `copy` counts bytes from the chunk's first
  // element.
  Status GatherStored(const StoredArray& array, const StridedCopy& copy, MutableByteSpan out);

 private:
  const GlobalTensor* tensor_;
  Gatherer* gatherer_;
  LocatedChunks* chunks_;
  std::size_t copy_;
};

// One-shot form of TensorReader::Read.
Status ReadBox(const CheckpointSource& source, const GlobalTensor& tensor, const Box& box,
               MutableByteSpan out, std::uint64_t budget_bytes, std::size_t copy = 0);

// Whether a tensor has one element, of float32, float64, int32, int64 or bool.
[[nodiscard]] bool IsNumber(const GlobalTensor& tensor);

// The element of a tensor that has one. Errors: kBadMetadata (it is not a number), and those of
// ReadBox.
Result<double> ReadStoredNumber(const CheckpointSource& source, const GlobalTensor& tensor);

// How many bytes at most a stream passes on at a time: a quarter of the budget, and what a cache
// holds.
[[nodiscard]] std::uint64_t StreamBlockBytes(std::uint64_t budget_bytes);

// Passes the tensor's bytes in C order to `sink`, in blocks of at most StreamBlockBytes. They may
// be used when this has returned OK: an error may come behind the last block.
Status StreamTensor(const CheckpointSource& source, const GlobalTensor& tensor,
                    std::uint64_t budget_bytes, const std::function<Status(ByteSpan)>& sink);

// The same of a box that whole chunks make up, and of copy number `copy` of these.
Status StreamChunks(const CheckpointSource& source, const GlobalTensor& tensor, const Box& box,
                    std::size_t copy, std::uint64_t budget_bytes,
                    const std::function<Status(ByteSpan)>& sink);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_READ_H_
