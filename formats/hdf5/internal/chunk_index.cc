#include "formats/hdf5/internal/chunk_index.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "formats/hdf5/internal/format_numbers.h"

namespace ckpt::hdf5 {
namespace {

class IndexReader {
 public:
  IndexReader(StructureFile& file, const DataSet& set, std::uint64_t chunk_bytes)
      : file_(file), set_(set), layout_(*set.chunked), chunk_bytes_(chunk_bytes) {}

  Result<std::vector<StoredChunk>> Read() {
    CKPT_ASSIGN_OR_RETURN(const std::int64_t num_shown, CountElements(GridOf(set_.shape)));
    if (layout_.index_at == kUndefined || num_shown == 0) return std::move(chunks_);
    switch (layout_.index) {
      case ChunkIndexKind::kTree:
        CKPT_RETURN_IF_ERROR(ReadNode(layout_.index_at, -1));
        break;
      case ChunkIndexKind::kSingle:
        if (num_shown != 1) {
          return file_.Bad(layout_.index_at, "a data set has more than one chunk");
        }
        CKPT_RETURN_IF_ERROR(AddSingle());
        break;
      case ChunkIndexKind::kImplicit:
        CKPT_RETURN_IF_ERROR(NumberChunks());
        CKPT_RETURN_IF_ERROR(AddImplicit());
        break;
      case ChunkIndexKind::kFixedArray:
        CKPT_RETURN_IF_ERROR(NumberChunks());
        CKPT_RETURN_IF_ERROR(ReadFixedArray());
        break;
      case ChunkIndexKind::kOther:
        return file_
            .Unsupported(layout_.index_at, "the chunk index of a data set that grows without limit")
            .Hint("h5repack -l CONTI stores it without chunks and without compression");
    }
    return std::move(chunks_);
  }

 private:
  // How many chunks there are in each dim of `shape`.
  [[nodiscard]] Dims GridOf(DimsView shape) const {
    Dims grid;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      grid.push_back(static_cast<std::int64_t>(CeilDiv(
          static_cast<std::uint64_t>(shape[d]), static_cast<std::uint64_t>(layout_.chunk[d]))));
    }
    return grid;
  }

  // Chunks that are numbered are so to the end of what the data set may become, so that none gets
  // another number when it grows.
  Status NumberChunks() {
    if (std::ranges::find(set_.max_shape, kUnlimited) != set_.max_shape.end()) {
      return file_.Bad(layout_.index_at, "numbered chunks of a data set that grows without limit");
    }
    grid_ = GridOf(set_.max_shape);
    CKPT_ASSIGN_OR_RETURN(num_chunks_, CountElements(grid_));
    return OkStatus();
  }

  Status Add(Dims offsets, std::uint64_t at, std::uint64_t size_bytes, std::uint32_t mask) {
    if (at == kUndefined) return OkStatus();
    StoredChunk chunk{
        .offsets = std::move(offsets), .at = at, .size_bytes = size_bytes, .skipped = mask};
    const std::uint32_t all =
        set_.filters.size() >= 32 ? 0xffffffff : (1U << set_.filters.size()) - 1;
    bool is_partial = false;
    bool is_shown = true;
    for (std::size_t d = 0; d < set_.shape.size(); ++d) {
      const std::int64_t size = layout_.chunk[d];
      const std::int64_t offset = chunk.offsets[d];
      if (offset < 0 || offset >= set_.max_shape[d] || offset % size != 0) {
        return file_.Bad(at, "a chunk does not lie on the grid of its data set");
      }
      is_shown = is_shown && offset < set_.shape[d];
      is_partial = is_partial || size > set_.shape[d] - offset;
    }
    if (!is_shown) return OkStatus();
    if (chunks_.size() == kMaxChunks) return TooManyChunks();
    if (layout_.keeps_partial_chunks && is_partial) chunk.skipped = all;
    chunk.skipped &= all;
    if (chunk.skipped == all && size_bytes != chunk_bytes_) {
      return file_.Bad(at, "a chunk does not have the size of chunks");
    }
    chunks_.push_back(std::move(chunk));
    return OkStatus();
  }

  // The offsets of a chunk by its number on the grid.
  [[nodiscard]] Dims OffsetsOf(std::uint64_t number) const {
    Dims offsets(grid_.size());
    for (std::size_t d = grid_.size(); d-- > 0;) {
      const auto count = static_cast<std::uint64_t>(grid_[d]);
      offsets[d] = static_cast<std::int64_t>(number % count) * layout_.chunk[d];
      number /= count;
    }
    return offsets;
  }

  Status ReadNode(std::uint64_t at, int level) {
    if (!seen_.insert(at).second) return file_.Bad(at, "a tree of chunks goes in a circle");
    constexpr std::uint64_t kHeadBytes = 24;
    const std::size_t rank = set_.shape.size();
    const std::uint64_t entry_bytes = 8 + 8 * (rank + 1) + 8;
    CKPT_ASSIGN_OR_RETURN(const Bytes head, file_.ReadSigned(at, kHeadBytes, "TREE"));
    FieldReader head_fields(head, at);
    head_fields.Skip(4);
    const std::uint8_t type = head_fields.U8();
    const int own_level = head_fields.U8();
    const std::uint16_t count = head_fields.U16();
    if (type != kTreeOfChunks || (level >= 0 && own_level != level)) {
      return file_.Bad(at, "a node of a tree of chunks is of another kind");
    }
    CKPT_ASSIGN_OR_RETURN(const Bytes body, file_.Read(at + kHeadBytes, entry_bytes * count));
    FieldReader fields(body, at + kHeadBytes);
    for (std::uint16_t e = 0; e < count; ++e) {
      const std::uint32_t size_bytes = fields.U32();
      const std::uint32_t mask = fields.U32();
      Dims offsets;
      for (std::size_t d = 0; d < rank; ++d) {
        offsets.push_back(static_cast<std::int64_t>(fields.U64()));
      }
      fields.Skip(8);  // of the element's bytes
      const std::uint64_t child = fields.U64();
      CKPT_RETURN_IF_ERROR(own_level > 0 ? ReadNode(child, own_level - 1)
                                         : Add(std::move(offsets), child, size_bytes, mask));
    }
    return OkStatus();
  }

  Status AddSingle() {
    const std::uint64_t size = layout_.single_bytes != 0 ? layout_.single_bytes : chunk_bytes_;
    return Add(Dims(set_.shape.size(), 0), layout_.index_at, size, layout_.single_mask);
  }

  // All chunks, one behind the other.
  Status AddImplicit() {
    std::uint64_t size = 0;
    if (!CheckedMul(static_cast<std::uint64_t>(num_chunks_), chunk_bytes_, &size) ||
        !RangeFits(layout_.index_at, size, file_.size_bytes())) {
      return file_.Bad(layout_.index_at, "the chunks of a data set reach past the file");
    }
    for (std::uint64_t c = 0; c < static_cast<std::uint64_t>(num_chunks_); ++c) {
      CKPT_RETURN_IF_ERROR(Add(OffsetsOf(c), layout_.index_at + c * chunk_bytes_, chunk_bytes_, 0));
    }
    return OkStatus();
  }

  // What the header of a fixed array says of its entries.
  struct FixedArray {
    bool has_sizes = false;  // and masks
    std::uint64_t entry_bytes = 0;
    std::uint64_t page = 0;  // entries
    std::uint64_t count = 0;
    std::uint64_t block_at = 0;  // kUndefined: no chunk was written
    std::uint64_t length = 0;    // bytes of all entries

    [[nodiscard]] bool is_paged() const { return count > page; }
    [[nodiscard]] std::uint64_t num_pages() const { return CeilDiv(count, page); }
  };

  Result<FixedArray> ReadFixedHeader() {
    constexpr std::uint64_t kHeaderBytes = 28;
    const std::uint64_t at = layout_.index_at;
    CKPT_ASSIGN_OR_RETURN(const Bytes header, file_.ReadSigned(at, kHeaderBytes, "FAHD"));
    CKPT_RETURN_IF_ERROR(file_.CheckSum(at, header));
    FieldReader fields(header, at);
    fields.Skip(5);
    FixedArray array;
    array.has_sizes = fields.U8() == 1;
    array.entry_bytes = fields.U8();
    const std::uint8_t page_bits = fields.U8();
    array.count = fields.U64();
    array.block_at = fields.U64();
    const bool fits_entry = array.has_sizes ? array.entry_bytes > 12 && array.entry_bytes <= 20
                                            : array.entry_bytes == 8;
    const bool is_sane = fits_entry && page_bits > 0 && page_bits < 32 &&
                         array.count == static_cast<std::uint64_t>(num_chunks_);
    if (!is_sane) return file_.Bad(at, "the sizes of an array of chunks make no sense");
    array.page = std::uint64_t{1} << page_bits;
    if (array.block_at != kUndefined &&
        (!CheckedMul(array.count, array.entry_bytes, &array.length) ||
         array.length > file_.size_bytes())) {
      return file_.Bad(at, "an array of chunks reaches past the file");
    }
    return array;
  }

  // Those of `num` chunks, the first of which is number `first`.
  Status AddEntries(const FixedArray& array, FieldReader entries, std::uint64_t first,
                    std::uint64_t num) {
    for (std::uint64_t c = first; c < first + num; ++c) {
      const std::uint64_t chunk_at = entries.U64();
      const std::uint64_t size =
          array.has_sizes ? entries.Uint(array.entry_bytes - 12) : chunk_bytes_;
      const std::uint32_t mask = array.has_sizes ? entries.U32() : 0;
      CKPT_RETURN_IF_ERROR(Add(OffsetsOf(c), chunk_at, size, mask));
    }
    return OkStatus();
  }

  // The pages that are there, one behind the other with room for the rest.
  Status AddPages(const FixedArray& array, ByteSpan bitmap, std::uint64_t pages_at) {
    for (std::uint64_t p = 0; p < array.num_pages(); ++p) {
      const bool is_there = (bitmap[p / 8] & (std::byte{0x80} >> (p % 8))) != std::byte{0};
      if (!is_there) continue;
      const std::uint64_t first = p * array.page;
      const std::uint64_t num = std::min(array.page, array.count - first);
      const std::uint64_t page_at =
          pages_at + p * (array.page * array.entry_bytes + kChecksumBytes);
      CKPT_ASSIGN_OR_RETURN(const Bytes bytes,
                            file_.Read(page_at, num * array.entry_bytes + kChecksumBytes));
      CKPT_RETURN_IF_ERROR(file_.CheckSum(page_at, bytes));
      CKPT_RETURN_IF_ERROR(AddEntries(array, FieldReader(bytes, page_at), first, num));
    }
    return OkStatus();
  }

  Status ReadFixedArray() {
    CKPT_ASSIGN_OR_RETURN(const FixedArray array, ReadFixedHeader());
    const std::uint64_t at = array.block_at;
    if (at == kUndefined) return OkStatus();
    constexpr std::uint64_t kPrefixBytes = 14;
    const std::uint64_t bitmap_bytes = array.is_paged() ? CeilDiv(array.num_pages(), 8) : 0;
    const std::uint64_t entries_bytes = array.is_paged() ? 0 : array.length;
    CKPT_ASSIGN_OR_RETURN(
        const Bytes block,
        file_.ReadSigned(at, kPrefixBytes + bitmap_bytes + entries_bytes + kChecksumBytes, "FADB"));
    CKPT_RETURN_IF_ERROR(file_.CheckSum(at, block));
    if (array.is_paged()) {
      return AddPages(array, ByteSpan(block).subspan(kPrefixBytes, bitmap_bytes),
                      at + block.size());
    }
    FieldReader entries(block, at);
    entries.Skip(kPrefixBytes);
    return AddEntries(array, entries, 0, array.count);
  }

  StructureFile& file_;
  const DataSet& set_;
  const ChunkedLayout& layout_;
  std::uint64_t chunk_bytes_;
  // Of numbered chunks.
  Dims grid_;
  std::int64_t num_chunks_ = 0;
  std::vector<StoredChunk> chunks_;
  std::set<std::uint64_t> seen_;
};

}  // namespace

Result<std::uint64_t> BytesOfChunk(const DataSet& set) {
  CKPT_ASSIGN_OR_RETURN(const std::int64_t count, CountElements(set.chunked->chunk));
  std::uint64_t bytes = 0;
  if (!CheckedMul(static_cast<std::uint64_t>(count), set.type.size_bytes, &bytes) ||
      bytes > kMaxChunkBytes) {
    return Error(ErrorKind::kResource, "a chunk of 4 GiB or more")
        .Actual(FormatDims(set.chunked->chunk));
  }
  return bytes;
}

Status TooManyChunks() {
  return Error(ErrorKind::kResource, "the data sets of the file have too many chunks")
      .Expected(fmt::format("at most {}", kMaxChunks));
}

Result<std::vector<StoredChunk>> ReadChunkIndex(StructureFile& file, const DataSet& set) {
  CKPT_ASSIGN_OR_RETURN(const std::uint64_t chunk_bytes, BytesOfChunk(set));
  return IndexReader(file, set, chunk_bytes).Read();
}

}  // namespace ckpt::hdf5
