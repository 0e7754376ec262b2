#include "formats/hdf5/internal/dense_links.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/base/checked_math.h"

namespace ckpt::hdf5 {
namespace {

std::size_t BytesFor(std::uint64_t largest) {
  return (static_cast<std::size_t>(std::bit_width(largest)) + 7) / 8;
}

// Every record of a version-2 tree, in order.
class TreeReader {
 public:
  TreeReader(StructureFile& file, std::uint8_t type) : file_(file), type_(type) {}

  Result<std::vector<std::pair<Bytes, std::uint64_t>>> Read(std::uint64_t at) {
    constexpr std::uint64_t kHeaderBytes = 38;
    CKPT_ASSIGN_OR_RETURN(const Bytes header, file_.ReadSigned(at, kHeaderBytes, "BTHD"));
    CKPT_RETURN_IF_ERROR(file_.CheckSum(at, header));
    FieldReader fields(header, at);
    fields.Skip(5);
    if (fields.U8() != type_) return file_.Bad(at, "a tree of records of another type");
    node_bytes_ = fields.U32();
    record_bytes_ = fields.U16();
    const std::uint16_t depth = fields.U16();
    fields.Skip(2);
    const std::uint64_t root = fields.U64();
    const std::uint16_t count = fields.U16();
    constexpr std::uint16_t kMaxDepth = 32;
    constexpr std::uint32_t kMinNodeBytes = 32;
    if (depth > kMaxDepth || node_bytes_ < kMinNodeBytes || record_bytes_ == 0) {
      return file_.Bad(at, "the sizes of a tree make no sense");
    }
    if (root != kUndefined) CKPT_RETURN_IF_ERROR(ReadNode(root, count, depth));
    return std::move(records_);
  }

 private:
  static constexpr std::uint64_t kHeadBytes = 6;

  // How many records a node that is `depth` levels above the leaves can hold, itself and all nodes
  // below it.
  struct Capacity {
    std::uint64_t own = 0;
    std::uint64_t all = 0;
  };
  [[nodiscard]] Capacity CapacityAt(std::uint16_t depth) const {
    const std::uint64_t room = node_bytes_ - kHeadBytes - kChecksumBytes;
    Capacity capacity{room / record_bytes_, room / record_bytes_};
    const std::size_t count_bytes = BytesFor(capacity.own);
    for (std::uint16_t d = 1; d <= depth; ++d) {
      const std::uint64_t pointer = 8 + count_bytes + (d > 1 ? BytesFor(capacity.all) : 0);
      const std::uint64_t own = room < pointer ? 0 : (room - pointer) / (record_bytes_ + pointer);
      std::uint64_t all = 0;
      if (!CheckedMul(own + 1, capacity.all, &all) || !CheckedAdd(all, own, &all)) {
        all = kUndefined;
      }
      capacity = {own, all};
    }
    return capacity;
  }

  Status ReadNode(std::uint64_t at, std::uint64_t count, std::uint16_t depth) {
    if (!seen_.insert(at).second) return file_.Bad(at, "a tree of records goes in a circle");
    const std::size_t count_bytes = BytesFor(CapacityAt(0).own);
    const std::size_t total_bytes =
        depth > 1 ? BytesFor(CapacityAt(static_cast<std::uint16_t>(depth - 1)).all) : 0;
    const std::uint64_t pointers = depth == 0 ? 0 : (count + 1) * (8 + count_bytes + total_bytes);
    const std::uint64_t length = kHeadBytes + count * record_bytes_ + pointers + kChecksumBytes;
    CKPT_ASSIGN_OR_RETURN(const Bytes node,
                          file_.ReadSigned(at, length, depth == 0 ? "BTLF" : "BTIN"));
    CKPT_RETURN_IF_ERROR(file_.CheckSum(at, node));
    FieldReader fields(node, at);
    fields.Skip(kHeadBytes);
    for (std::uint64_t r = 0; r < count; ++r) {
      const std::uint64_t record_at = fields.at();
      const ByteSpan record = fields.Take(record_bytes_);
      records_.emplace_back(Bytes(record.begin(), record.end()), record_at);
    }
    if (depth == 0) return OkStatus();
    for (std::uint64_t c = 0; c <= count; ++c) {
      const std::uint64_t child = fields.U64();
      const std::uint64_t child_count = fields.Uint(count_bytes);
      fields.Skip(total_bytes);
      CKPT_RETURN_IF_ERROR(ReadNode(child, child_count, static_cast<std::uint16_t>(depth - 1)));
    }
    return OkStatus();
  }

  StructureFile& file_;
  std::uint8_t type_;
  std::uint64_t node_bytes_ = 0;
  std::uint64_t record_bytes_ = 0;
  std::set<std::uint64_t> seen_;
  std::vector<std::pair<Bytes, std::uint64_t>> records_;
};

// Objects by id, in blocks whose sizes double row by row ("managed" ones), or each by itself and
// listed in a tree ("huge" ones). No link and no attribute is so small that its id holds it.
class FractalHeap {
 public:
  explicit FractalHeap(StructureFile& file) : file_(file) {}

  Status Open(std::uint64_t at) {
    constexpr std::uint64_t kHeaderBytes = 146;
    at_ = at;
    CKPT_ASSIGN_OR_RETURN(const Bytes header, file_.ReadSigned(at, kHeaderBytes, "FRHP"));
    FieldReader fields(header, at);
    fields.Skip(5);
    id_bytes_ = fields.U16();
    if (fields.U16() != 0) return file_.Unsupported(at, "a compressed heap");
    fields.Skip(1);
    max_object_bytes_ = fields.U32();
    fields.Skip(8);  // the next number of a huge object
    huge_objects_ = fields.U64();
    fields.Skip(std::uint64_t{8} * 10);
    width_ = fields.U16();
    start_bytes_ = fields.U64();
    max_direct_bytes_ = fields.U64();
    heap_bits_ = fields.U16();
    fields.Skip(2);
    root_ = fields.U64();
    root_rows_ = fields.U16();
    CKPT_RETURN_IF_ERROR(file_.CheckSum(at, header));
    const bool is_sane = width_ > 0 && std::has_single_bit(start_bytes_) &&
                         std::has_single_bit(max_direct_bytes_) &&
                         start_bytes_ <= max_direct_bytes_ && heap_bits_ > 0 && heap_bits_ <= 64;
    if (!is_sane) return file_.Bad(at, "the sizes of a heap's blocks make no sense");
    offset_bytes_ = (heap_bits_ + 7U) / 8;
    length_bytes_ = std::min(BytesFor(max_direct_bytes_), BytesFor(max_object_bytes_));
    return OkStatus();
  }

  [[nodiscard]] std::size_t id_bytes() const { return id_bytes_; }

  Result<DenseRecord> Get(ByteSpan id, std::uint64_t id_at) {
    constexpr std::uint8_t kHuge = 0x10;
    FieldReader fields(id, id_at);
    const std::uint8_t kind = fields.U8() & 0xf0;
    if (kind == kHuge) return GetHuge(fields.Uint(std::min(fields.left(), std::size_t{8})), id_at);
    if (kind != 0) return file_.Unsupported(id_at, "a record that lies in its id in a heap");
    const std::uint64_t offset = fields.Uint(offset_bytes_);
    const std::uint64_t length = fields.Uint(length_bytes_);
    if (!fields.ok()) return file_.Bad(id_at, "the id of a record is cut off");
    CKPT_ASSIGN_OR_RETURN(const Block block, Find(offset));
    if (!RangeFits(offset - block.begin, length, block.size)) {
      return file_.Bad(id_at, "a record reaches past its block");
    }
    DenseRecord record;
    record.at = block.at + (offset - block.begin);
    CKPT_ASSIGN_OR_RETURN(record.body, file_.Read(record.at, length));
    return record;
  }

 private:
  struct Huge {
    std::uint64_t at = 0;
    std::uint64_t size = 0;
  };

  // The one of that number. Ids that have room for a place instead of a number are longer than
  // those of links and attributes.
  Result<DenseRecord> GetHuge(std::uint64_t number, std::uint64_t id_at) {
    if (!huge_) {
      constexpr std::uint8_t kHugeByNumber = 1;
      huge_.emplace();
      if (huge_objects_ == kUndefined) return file_.Bad(at_, "a heap lacks its large records");
      CKPT_ASSIGN_OR_RETURN(const auto entries,
                            TreeReader(file_, kHugeByNumber).Read(huge_objects_));
      for (const auto& [entry, at] : entries) {
        FieldReader fields(entry, at);
        const Huge object{.at = fields.U64(), .size = fields.U64()};
        huge_->emplace(fields.U64(), object);
        if (!fields.ok()) return file_.Bad(at, "a record of a tree is too small");
      }
    }
    const auto found = huge_->find(number);
    if (found == huge_->end()) return file_.Bad(id_at, "a heap lacks a record that is asked for");
    DenseRecord record;
    record.at = found->second.at;
    CKPT_ASSIGN_OR_RETURN(record.body, file_.Read(record.at, found->second.size));
    return record;
  }

  struct Block {
    std::uint64_t at = 0;
    std::uint64_t begin = 0;  // in the heap's own space
    std::uint64_t size = 0;
  };

  [[nodiscard]] std::uint64_t RowBytes(std::uint32_t row) const {
    return row == 0 ? start_bytes_ : start_bytes_ << (row - 1);
  }

  // The direct block in which the heap's byte `offset` lies.
  Result<Block> Find(std::uint64_t offset) {
    if (root_rows_ == 0) return CheckBlock({root_, 0, start_bytes_});
    std::uint64_t node = root_;
    std::uint64_t node_begin = 0;
    std::uint32_t rows = root_rows_;
    constexpr int kMaxDepth = 64;
    for (int depth = 0; depth < kMaxDepth; ++depth) {
      std::uint64_t begin = node_begin;
      std::uint32_t row = 0;
      // Rows stay below 64, or their sizes would not be numbers.
      for (; row < rows && row < 64; ++row) {
        std::uint64_t row_bytes = 0;
        if (std::countl_zero(start_bytes_) < static_cast<int>(row) ||
            !CheckedMul<std::uint64_t>(RowBytes(row), width_, &row_bytes)) {
          return file_.Bad(at_, "the rows of a heap overflow");
        }
        if (offset - begin < row_bytes) break;
        begin += row_bytes;
      }
      if (row >= rows || row >= 64) return file_.Bad(at_, "a record lies outside its heap");
      const std::uint64_t size = RowBytes(row);
      const std::uint64_t column = (offset - begin) / size;
      begin += column * size;
      // Signature, version, the heap's address, the offset of the block.
      const std::uint64_t number = std::uint64_t{row} * width_ + column;
      const std::uint64_t entry_at = node + 5 + 8 + offset_bytes_ + 8 * number;
      CKPT_RETURN_IF_ERROR(file_.ReadSigned(node, 5, "FHIB").status());
      CKPT_ASSIGN_OR_RETURN(const Bytes entry, file_.Read(entry_at, 8));
      node = FieldReader(entry, entry_at).U64();
      if (size <= max_direct_bytes_) return CheckBlock({node, begin, size});
      // As many rows as fill a block of this size.
      node_begin = begin;
      rows = static_cast<std::uint32_t>(std::bit_width(size / (start_bytes_ * width_)));
    }
    return file_.Bad(at_, "the blocks of a heap nest too deep");
  }

  Result<Block> CheckBlock(const Block& block) {
    CKPT_RETURN_IF_ERROR(file_.ReadSigned(block.at, 5, "FHDB").status());
    return block;
  }

  StructureFile& file_;
  std::uint64_t at_ = 0;
  std::size_t id_bytes_ = 0;
  std::uint64_t max_object_bytes_ = 0;
  std::uint64_t huge_objects_ = kUndefined;            // their tree
  std::optional<std::map<std::uint64_t, Huge>> huge_;  // by number; nothing: not asked for yet
  std::uint32_t width_ = 0;
  std::uint64_t start_bytes_ = 0;
  std::uint64_t max_direct_bytes_ = 0;
  std::uint32_t heap_bits_ = 0;
  std::uint64_t root_ = 0;
  std::uint32_t root_rows_ = 0;
  std::size_t offset_bytes_ = 0;
  std::size_t length_bytes_ = 0;
};

// `id_at`: where in a record of the tree the id of the heap's record is.
Result<std::vector<DenseRecord>> ReadDense(StructureFile& file, std::uint64_t heap_at,
                                           std::uint64_t index, std::uint8_t type,
                                           std::size_t id_at) {
  FractalHeap heap(file);
  CKPT_RETURN_IF_ERROR(heap.Open(heap_at));
  CKPT_ASSIGN_OR_RETURN(const auto entries, TreeReader(file, type).Read(index));
  std::vector<DenseRecord> records;
  for (const auto& [entry, at] : entries) {
    if (!RangeFits(id_at, heap.id_bytes(), entry.size())) {
      return file.Bad(at, "a record of a tree is too small");
    }
    const ByteSpan id = ByteSpan(entry).subspan(id_at, heap.id_bytes());
    CKPT_ASSIGN_OR_RETURN(DenseRecord record, heap.Get(id, at + id_at));
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace

Result<std::vector<DenseRecord>> ReadDenseLinks(StructureFile& file, std::uint64_t heap,
                                                std::uint64_t index) {
  constexpr std::uint8_t kLinksByName = 5;
  constexpr std::size_t kHashBytes = 4;
  return ReadDense(file, heap, index, kLinksByName, kHashBytes);
}

Result<std::vector<DenseRecord>> ReadDenseAttributes(StructureFile& file, std::uint64_t heap,
                                                     std::uint64_t index) {
  constexpr std::uint8_t kAttributesByName = 8;
  return ReadDense(file, heap, index, kAttributesByName, 0);
}

}  // namespace ckpt::hdf5
