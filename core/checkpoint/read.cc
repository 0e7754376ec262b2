#include "core/checkpoint/read.h"

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/endian.h"
#include "core/base/units.h"
#include "core/checkpoint/chunk_copies.h"
#include "core/tensor/blocks.h"

namespace ckpt {
namespace {

// A gap of this size costs less to read than a second request (local NVMe; the page cache reads
// further ahead).
constexpr std::uint64_t kCoalesceGapBytes = 64 * kKiB;
constexpr std::uint64_t kMinScratchBytes = 256 * kKiB;
constexpr std::uint64_t kMaxScratchBytes = kMiB;
// Of a stream. What was read is hashed while it lies in the core's own cache, and new memory costs
// more than reading into old one.
constexpr std::uint64_t kMaxStreamBytes = kMiB;
constexpr std::size_t kMaxLocated = 1024;
constexpr std::uint64_t kNumberBudget = 64 * kKiB;  // for the chunks of a tensor of one number

// Two's complement, least significant byte first.
void NegateInteger(MutableByteSpan element) {
  for (std::byte& byte : element) byte = ~byte;
  for (std::byte& byte : element) {
    byte = static_cast<std::byte>(std::to_integer<unsigned>(byte) + 1);
    if (byte != std::byte{0}) break;
  }
}

// Turns stored elements into logical ones, in place: first byte order, then torch's lazy conjugate
// and negative.
void ResolveElements(const StoredArray& array, MutableByteSpan elements) {
  const std::uint64_t unit = SwapUnitBytes(array.dtype);
  if (array.byte_swapped && unit > 1) {
    for (std::size_t at = 0; at < elements.size(); at += unit) {
      std::reverse(elements.begin() + static_cast<std::ptrdiff_t>(at),
                   elements.begin() + static_cast<std::ptrdiff_t>(at + unit));
    }
  }
  if (!array.negated && !array.conjugated) return;
  if (IsInteger(array.dtype)) {
    for (std::size_t at = 0; array.negated && at < elements.size(); at += unit) {
      NegateInteger(elements.subspan(at, unit));
    }
    return;
  }
  // Both only flip sign bits of floating-point components. A conjugate flips only the odd
  // (imaginary) components.
  const bool is_complex = unit != ElementBytes(array.dtype);
  for (std::size_t at = 0, i = 0; at < elements.size(); at += unit, ++i) {
    const bool flip = array.negated != (array.conjugated && is_complex && i % 2 == 1);
    if (flip) elements[at + unit - 1] ^= std::byte{0x80};
  }
}

bool NeedsResolving(const StoredArray& array) {
  return (array.byte_swapped && SwapUnitBytes(array.dtype) > 1) || array.negated ||
         array.conjugated;
}

// Resolves the elements that a copy has put into `out`, from `at` on.
void ResolveRuns(const StoredArray& array, std::span<const StrideLoop> loops,
                 std::uint64_t run_bytes, MutableByteSpan out, std::uint64_t at) {
  if (loops.empty()) return ResolveElements(array, out.subspan(at, run_bytes));
  const StrideLoop& loop = loops.front();
  for (std::int64_t i = 0; i < loop.extent; ++i) {
    ResolveRuns(array, loops.subspan(1), run_bytes, out,
                at + static_cast<std::uint64_t>(i * loop.dst_step));
  }
}

// The outermost loop of a copy, and how many of its iterations one read serves: 0 if each is a copy
// of its own.
struct OuterLoop {
  StrideLoop loop;
  StridedCopy inner;
  std::uint64_t inner_span = 0;
  std::int64_t per_read = 0;
};

// Of a read that has a range of every iteration.
std::uint64_t RangeBytes(const OuterLoop& outer, std::uint64_t scratch_bytes) {
  return scratch_bytes / static_cast<std::uint64_t>(outer.loop.extent);
}

OuterLoop SplitOuterLoop(const StridedCopy& copy, std::uint64_t scratch_bytes) {
  OuterLoop outer{.loop = copy.loops.front(), .inner = copy};
  outer.inner.loops.erase(outer.inner.loops.begin());
  outer.inner_span = outer.inner.SourceSpan();
  const auto step = static_cast<std::uint64_t>(outer.loop.src_step);
  const bool is_dense = step <= outer.inner_span + kCoalesceGapBytes;
  if (!is_dense || outer.inner_span > scratch_bytes) return outer;
  const auto extent = static_cast<std::uint64_t>(outer.loop.extent);
  const std::uint64_t fitting = step == 0 ? extent : (scratch_bytes - outer.inner_span) / step + 1;
  outer.per_read = static_cast<std::int64_t>(std::min(fitting, extent));
  // Transposed, the iterations fill whole lines of the target.
  if (fitting < extent && fitting > kCacheLineBytes) {
    outer.per_read -= outer.per_read % static_cast<std::int64_t>(kCacheLineBytes);
  }
  return outer;
}

// Whether elements of different iterations of the outermost loop are neighbours in the target, as
// those of two matrices of which one has the even columns. Then a read has a range of every
// iteration, so that it fills whole lines of the target.
bool InterleavesInTarget(const OuterLoop& outer, std::uint64_t scratch_bytes) {
  const std::vector<StrideLoop>& inner = outer.inner.loops;
  const std::uint64_t range_bytes = RangeBytes(outer, scratch_bytes);
  const auto is_slower = [&](const StrideLoop& loop) {
    return loop.dst_step > outer.loop.dst_step;
  };
  return outer.per_read <= 1 && !inner.empty() && std::ranges::all_of(inner, is_slower) &&
         std::cmp_less(outer.loop.dst_step, kCacheLineBytes) && range_bytes >= kCoalesceGapBytes &&
         SplitOuterLoop(outer.inner, range_bytes).per_read > 1;
}

}  // namespace

std::uint64_t Gatherer::ScratchBytes(std::uint64_t asked) {
  return std::clamp(asked, kMinScratchBytes, kMaxScratchBytes);
}

Gatherer::Gatherer(std::uint64_t scratch_bytes) : scratch_bytes_(ScratchBytes(scratch_bytes)) {}

Status PlanReads(const StridedCopy& copy, std::uint64_t scratch_bytes,
                 const std::function<Status(const FileRead&)>& visit) {
  if (copy.run_bytes == 0) return OkStatus();
  if (copy.loops.empty()) {
    FileRead read{.offset_bytes = copy.src_offset, .range_bytes = copy.run_bytes, .copy = copy};
    read.copy.src_offset = 0;
    return visit(read);
  }
  OuterLoop outer = SplitOuterLoop(copy, scratch_bytes);
  if (InterleavesInTarget(outer, scratch_bytes)) {
    return PlanReads(outer.inner, RangeBytes(outer, scratch_bytes), [&](FileRead read) {
      read.num_ranges = outer.loop.extent;
      read.range_step = outer.loop.src_step;
      read.copy.loops.insert(read.copy.loops.begin(),
                             {.extent = outer.loop.extent,
                              .src_step = static_cast<std::int64_t>(read.range_bytes),
                              .dst_step = outer.loop.dst_step});
      return visit(read);
    });
  }
  const auto step = static_cast<std::uint64_t>(outer.loop.src_step);
  if (outer.per_read == 0) {
    StridedCopy& inner = outer.inner;
    for (std::int64_t i = 0; i < outer.loop.extent; ++i) {
      inner.src_offset = copy.src_offset + static_cast<std::uint64_t>(i) * step;
      inner.dst_offset = copy.dst_offset + static_cast<std::uint64_t>(i * outer.loop.dst_step);
      CKPT_RETURN_IF_ERROR(PlanReads(inner, scratch_bytes, visit));
    }
    return OkStatus();
  }
  for (std::int64_t i = 0; i < outer.loop.extent; i += outer.per_read) {
    FileRead read{.offset_bytes = copy.src_offset + static_cast<std::uint64_t>(i) * step,
                  .copy = copy};
    read.copy.loops.front().extent = std::min(outer.per_read, outer.loop.extent - i);
    read.range_bytes = read.copy.SourceSpan();
    read.copy.src_offset = 0;
    read.copy.dst_offset = copy.dst_offset + static_cast<std::uint64_t>(i * outer.loop.dst_step);
    CKPT_RETURN_IF_ERROR(visit(read));
  }
  return OkStatus();
}

std::uint64_t BytesOfReads(StridedCopy copy, std::uint64_t scratch_bytes) {
  std::uint64_t copies = 1;
  while (copy.run_bytes != 0 && !copy.loops.empty()) {
    OuterLoop outer = SplitOuterLoop(copy, scratch_bytes);
    const auto extent = static_cast<std::uint64_t>(outer.loop.extent);
    const bool interleaves = InterleavesInTarget(outer, scratch_bytes);
    if (!interleaves && outer.per_read != 0) {
      const auto per_read = static_cast<std::uint64_t>(outer.per_read);
      const std::uint64_t reads = (extent + per_read - 1) / per_read;
      const auto step = static_cast<std::uint64_t>(outer.loop.src_step);
      return copies * (reads * outer.inner_span + (extent - reads) * step);
    }
    if (interleaves) scratch_bytes = RangeBytes(outer, scratch_bytes);
    copies *= extent;
    copy = std::move(outer.inner);
  }
  return copies * copy.run_bytes;
}

Status Gatherer::Gather(const ReadableFile& file, const StridedCopy& copy, MutableByteSpan out) {
  return PlanReads(copy, scratch_bytes_, [&](const FileRead& read) -> Status {
    bytes_read_ += read.SizeBytes();
    if (read.copy.loops.empty()) {
      return file.ReadAt(read.offset_bytes, out.subspan(read.copy.dst_offset, read.range_bytes));
    }
    const MutableByteSpan window = scratch_.First(read.SizeBytes());
    for (std::int64_t i = 0; i < read.num_ranges; ++i) {
      CKPT_RETURN_IF_ERROR(file.ReadAt(
          read.offset_bytes + static_cast<std::uint64_t>(i * read.range_step),
          window.subspan(static_cast<std::uint64_t>(i) * read.range_bytes, read.range_bytes)));
    }
    CopyStrided(read.copy, window.data(), out.data());
    return OkStatus();
  });
}

Result<const StoredArray*> LocatedChunks::Locate(const GlobalTensor& tensor, const Chunk& chunk) {
  if (const auto found = by_chunk_.find(&chunk); found != by_chunk_.end()) {
    recent_.splice(recent_.begin(), recent_, found->second);
    return &recent_.front().array;
  }
  CKPT_ASSIGN_OR_RETURN(StoredArray array, use_ == ChunkUse::kToStream
                                               ? source_->LocateToStream(tensor, chunk)
                                               : source_->Locate(tensor, chunk));
  resident_bytes_ += array.resident_bytes;
  recent_.push_front({&chunk, std::move(array)});
  by_chunk_[&chunk] = recent_.begin();
  while (recent_.size() > 1 && (resident_bytes_ > budget_bytes_ || recent_.size() > kMaxLocated)) {
    resident_bytes_ -= recent_.back().array.resident_bytes;
    by_chunk_.erase(recent_.back().chunk);
    recent_.pop_back();
  }
  return &recent_.front().array;
}

void LocatedChunks::Clear() {
  recent_.clear();
  by_chunk_.clear();
  resident_bytes_ = 0;
}

Status TensorReader::GatherStored(const StoredArray& array, const StridedCopy& copy,
                                  MutableByteSpan out) {
  StridedCopy in_file = copy;
  in_file.src_offset += array.offset_bytes;
  CKPT_RETURN_IF_ERROR(gatherer_->Gather(*array.file, Normalize(in_file), out));
  if (NeedsResolving(array)) ResolveRuns(array, copy.loops, copy.run_bytes, out, copy.dst_offset);
  return OkStatus();
}

Status TensorReader::Read(const Box& box, MutableByteSpan out) {
  return ReadInto(box, out, 0, ContiguousStrides(box.sizes));
}

Status TensorReader::ReadInto(const Box& box, MutableByteSpan out, std::uint64_t dst_offset,
                              DimsView dst_strides) {
  const CheckpointIndex& index = chunks_->source().index();
  const std::uint64_t element_bytes = ElementBytes(tensor_->dtype);
  std::int64_t missing = NumElements(box.sizes);
  const std::span<const Chunk> chunks = index.chunks(*tensor_);
  const ChunkCopies copies(chunks, copy_);
  std::set<BoxId> read;  // boxes read: a replica must not count twice
  for (const Chunk& chunk : chunks) {
    if (missing <= 0) break;
    const std::optional<Box> common = Intersect({index.offsets(chunk), index.sizes(chunk)}, box);
    if (!common || !read.insert(BoxIdOf(chunk)).second) continue;
    const Box stored = index.box(chunk);
    CKPT_ASSIGN_OR_RETURN(const StoredArray* array, chunks_->Locate(*tensor_, copies.Of(chunk)));
    std::uint64_t src_at = 0;
    std::uint64_t dst_at = dst_offset;
    for (std::size_t d = 0; d < box.sizes.size(); ++d) {
      src_at +=
          static_cast<std::uint64_t>((common->offsets[d] - stored.offsets[d]) * array->strides[d]) *
          element_bytes;
      dst_at += static_cast<std::uint64_t>((common->offsets[d] - box.offsets[d]) * dst_strides[d]) *
                element_bytes;
    }
    const StridedCopy copy =
        MakeBoxCopy(common->sizes, element_bytes, src_at, array->strides, dst_at, dst_strides);
    if (Status status = GatherStored(*array, copy, out); !status.ok()) {
      return std::move(status).Tensor(tensor_->key);
    }
    missing -= NumElements(common->sizes);
  }
  if (missing > 0) {
    return Error(ErrorKind::kCoverage, "no chunk holds part of the tensor")
        .Tensor(tensor_->key)
        .Expected(FormatBox(box))
        .Actual(fmt::format("{} elements fewer", missing));
  }
  return OkStatus();
}

Status ReadBox(const CheckpointSource& source, const GlobalTensor& tensor, const Box& box,
               MutableByteSpan out, std::uint64_t budget_bytes, std::size_t copy) {
  Gatherer gatherer(budget_bytes / 4);
  LocatedChunks chunks(source, budget_bytes);
  return TensorReader(tensor, gatherer, chunks, copy).Read(box, out);
}

bool IsNumber(const GlobalTensor& tensor) {
  switch (tensor.dtype) {
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kBool:
      return NumElements(tensor.shape) == 1;
    default:
      return false;
  }
}

Result<double> ReadStoredNumber(const CheckpointSource& source, const GlobalTensor& tensor) {
  CKPT_RETURN_IF_ERROR(source.index().CheckDeliverable(tensor.key));
  if (!IsNumber(tensor)) {
    const std::string_view wrong = NumElements(tensor.shape) == 1
                                       ? "a stored number has another type"
                                       : "a stored number does not have exactly one element";
    return Error(ErrorKind::kBadMetadata, wrong)
        .Tensor(tensor.key)
        .Expected("one number of float32, float64, int32, int64 or bool")
        .Actual(fmt::format("{} {}", DTypeName(tensor.dtype), FormatDims(tensor.shape)));
  }
  Bytes value(ElementBytes(tensor.dtype));
  CKPT_RETURN_IF_ERROR(ReadBox(source, tensor, WholeBox(tensor.shape), value, kNumberBudget));
  switch (tensor.dtype) {
    case DType::kFloat32:
      return static_cast<double>(LoadLe<float>(value.data()));
    case DType::kFloat64:
      return LoadLe<double>(value.data());
    case DType::kInt32:
      return static_cast<double>(LoadLe<std::int32_t>(value.data()));
    case DType::kInt64:
      return static_cast<double>(LoadLe<std::int64_t>(value.data()));
    default:
      return LoadLe<std::uint8_t>(value.data()) == 0 ? 0.0 : 1.0;
  }
}

std::uint64_t StreamBlockBytes(std::uint64_t budget_bytes) {
  return std::clamp(budget_bytes / 4, kMinScratchBytes, kMaxStreamBytes);
}

Status StreamTensor(const CheckpointSource& source, const GlobalTensor& tensor,
                    std::uint64_t budget_bytes, const std::function<Status(ByteSpan)>& sink) {
  return StreamChunks(source, tensor, WholeBox(tensor.shape), 0, budget_bytes, sink);
}

Status StreamChunks(const CheckpointSource& source, const GlobalTensor& tensor, const Box& box,
                    std::size_t copy, std::uint64_t budget_bytes,
                    const std::function<Status(ByteSpan)>& sink) {
  const std::uint64_t block_bytes = StreamBlockBytes(budget_bytes);
  const std::uint64_t element_bytes = ElementBytes(tensor.dtype);
  Gatherer gatherer(budget_bytes / 4);
  LocatedChunks chunks(source, budget_bytes / 2, ChunkUse::kToStream);
  TensorReader reader(tensor, gatherer, chunks, copy);
  const auto bytes_of = [&](DimsView sizes) { return NumBytes(sizes, tensor.dtype); };
  // The buffer is not filled with zeros, so that a tensor that cannot be read costs almost nothing.
  const auto buffer =
      std::make_unique_for_overwrite<std::byte[]>(std::min(block_bytes, bytes_of(box.sizes)));
  return ForEachBlock(box, static_cast<std::int64_t>(block_bytes / element_bytes),
                      [&](const Box& block) {
                        const MutableByteSpan bytes(buffer.get(), bytes_of(block.sizes));
                        CKPT_RETURN_IF_ERROR(reader.Read(block, bytes));
                        return sink(bytes);
                      });
}

}  // namespace ckpt
