#include "formats/hdf5/internal/piece_bytes.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/units.h"
#include "core/tensor/strided_copy.h"
#include "formats/hdf5/internal/filters.h"

namespace ckpt::hdf5 {
namespace {

// What is read and decoded for elements, against their limit. Chunks reach past the shape, and some
// are larger stored than decoded; but entries of an index may all name one chunk.
constexpr std::uint64_t kTimesGathered = 3;

Result<Bytes> ReadStored(const ReadableFile& file, std::uint64_t offset_bytes,
                         std::uint64_t size_bytes) {
  CKPT_RETURN_IF_ERROR(CheckInFile(file, offset_bytes, size_bytes));
  Bytes stored(size_bytes);
  CKPT_RETURN_IF_ERROR(file.ReadAt(offset_bytes, stored));
  return stored;
}

// The elements of a piece, of a filtered one with the rest of its chunk.
Result<Bytes> ReadElements(const ReadableFile& file, const Piece& piece,
                           std::uint64_t element_bytes) {
  if (piece.form.coding == Coding::kFill) return ReadStored(*piece.form.fill, 0, element_bytes);
  if (piece.form.coding == Coding::kRaw) {
    return ReadStored(file, piece.offset_bytes, piece.size_bytes);
  }
  return DecodeChunk(file, piece.offset_bytes, piece.size_bytes, piece.form, element_bytes);
}

// Adds the bytes that are read for a piece, and those that are decoded from them. Whether they stay
// within the limit.
bool AddGathered(const Piece& piece, std::uint64_t max_bytes, std::uint64_t& gathered) {
  const bool is_decoded = piece.form.coding == Coding::kFiltered;
  return CheckedAdd(gathered, piece.size_bytes, &gathered) &&
         CheckedAdd(gathered, is_decoded ? piece.form.decoded_bytes : 0, &gathered) &&
         gathered / kTimesGathered <= max_bytes;
}

// The bytes of all elements together. Errors: kResource, as GatherElements.
Result<std::uint64_t> CountGathered(const ReadableFile& file, const std::vector<Piece>& pieces,
                                    DimsView shape, std::uint64_t element_bytes,
                                    std::uint64_t max_bytes) {
  CKPT_ASSIGN_OR_RETURN(const std::int64_t count, CountElements(shape));
  std::uint64_t size = 0;
  bool fits =
      CheckedMul(static_cast<std::uint64_t>(count), element_bytes, &size) && size <= max_bytes;
  std::uint64_t gathered = 0;
  for (const Piece& piece : pieces) fits = fits && AddGathered(piece, max_bytes, gathered);
  if (fits) return size;
  return Error(ErrorKind::kResource, "the elements are more than are read into memory")
      .File(file.name())
      .Expected("at most " + FormatByteSize(max_bytes));
}

// Puts the elements of a piece in their places among those of all, whose strides are `strides`.
Status CopyPiece(const ReadableFile& file, const Piece& piece, std::uint64_t element_bytes,
                 DimsView strides, Bytes& elements) {
  CKPT_ASSIGN_OR_RETURN(const Bytes stored, ReadElements(file, piece, element_bytes));
  std::uint64_t first = 0;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    first += static_cast<std::uint64_t>(piece.box.offsets[d] * strides[d]);
  }
  const StridedCopy copy =
      MakeBoxCopy(piece.box.sizes, element_bytes, piece.form.first * element_bytes,
                  piece.form.strides, first * element_bytes, strides);
  if (!RangeFits(copy.src_offset, copy.SourceSpan(), stored.size())) {
    return Error(ErrorKind::kSizeMismatch, "a piece has fewer bytes than its elements")
        .File(DescribeRange(file.name(), piece.offset_bytes, piece.size_bytes));
  }
  CopyStrided(copy, stored.data(), elements.data());
  return OkStatus();
}

}  // namespace

Status CheckInFile(const ReadableFile& file, std::uint64_t offset_bytes, std::uint64_t size_bytes) {
  if (RangeFits(offset_bytes, size_bytes, file.size_bytes())) return OkStatus();
  return Error(ErrorKind::kTruncated, "the elements lie outside their file")
      .File(DescribeRange(file.name(), offset_bytes, size_bytes))
      .Actual(fmt::format("{} bytes in the file", file.size_bytes()));
}

Result<Bytes> DecodeChunk(const ReadableFile& file, std::uint64_t offset_bytes,
                          std::uint64_t size_bytes, const PieceForm& form,
                          std::uint64_t element_bytes) {
  CKPT_ASSIGN_OR_RETURN(Bytes stored, ReadStored(file, offset_bytes, size_bytes));
  Result<Bytes> decoded =
      UndoFilters(std::move(stored), *form.filterings, form.decoded_bytes, element_bytes);
  if (decoded.ok()) return decoded;
  return std::move(decoded).status().File(DescribeRange(file.name(), offset_bytes, size_bytes));
}

bool ChunkHasChecksum(const ReadableFile& file, std::uint64_t offset_bytes,
                      std::uint64_t size_bytes, const PieceForm& form) {
  const Result<Bytes> head =
      ReadStored(file, offset_bytes, std::min(size_bytes, kChecksumHeadBytes));
  return head.ok() && HaveChecksum(*form.filterings, *head, form.decoded_bytes);
}

Result<Bytes> GatherElements(const ReadableFile& file, const std::vector<Piece>& pieces,
                             DimsView shape, std::uint64_t element_bytes, std::uint64_t max_bytes) {
  CKPT_ASSIGN_OR_RETURN(const std::uint64_t size,
                        CountGathered(file, pieces, shape, element_bytes, max_bytes));
  Bytes elements(size);
  const Dims strides = ContiguousStrides(shape);
  for (const Piece& piece : pieces) {
    CKPT_RETURN_IF_ERROR(CopyPiece(file, piece, element_bytes, strides, elements));
  }
  return elements;
}

}  // namespace ckpt::hdf5
