#include "formats/hdf5/internal/pieces.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "core/base/checked_math.h"
#include "core/base/quote.h"
#include "core/base/units.h"
#include "formats/hdf5/internal/attribute.h"
#include "formats/hdf5/internal/chunk_index.h"
#include "formats/hdf5/internal/links.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/object_header.h"
#include "formats/hdf5/internal/virtual_map.h"

namespace ckpt::hdf5 {
namespace {

constexpr std::uint64_t kMaxPieces = kMaxChunks;
// Boxes that are looked at to find the gaps between the parts of virtual data sets: a few a part,
// in any honest order.
constexpr std::uint64_t kMaxCuts = 16 * kMaxPieces;
// Elements that were never written take no bytes: a small file must not announce terabytes of them.
constexpr std::uint64_t kFilledPerByte = 16;
constexpr std::uint64_t kFilledBytes = 64 * kMiB;

// The part of a piece that lies in `box`, which is inside the piece's own, still in its place.
Piece CutPiece(const Piece& piece, const Box& box, std::uint64_t element_bytes) {
  Piece part = piece;
  part.box = box;
  std::uint64_t first = 0;
  std::uint64_t last = 0;  // element, from the first
  for (std::size_t d = 0; d < box.sizes.size(); ++d) {
    const auto stride = static_cast<std::uint64_t>(piece.form.strides[d]);
    first += static_cast<std::uint64_t>(box.offsets[d] - piece.box.offsets[d]) * stride;
    last += static_cast<std::uint64_t>(box.sizes[d] - 1) * stride;
  }
  if (piece.form.coding == Coding::kRaw) {
    part.offset_bytes += first * element_bytes;
    part.size_bytes = (last + 1) * element_bytes;
  } else if (piece.form.coding != Coding::kFill) {
    part.form.first += first;
  }
  return part;
}

// What has no limit ends where `shape` does.
Box ClipBox(Box box, DimsView shape) {
  for (std::size_t d = 0; d < std::min(box.sizes.size(), shape.size()); ++d) {
    if (box.sizes[d] != kUnlimited) continue;
    box.sizes[d] = std::max<std::int64_t>(shape[d] - box.offsets[d], 0);
  }
  return box;
}

// Adds what of `rest` lies outside `box`.
void CutOut(Box rest, const Box& box, std::vector<Box>& outside) {
  const std::optional<Box> common = Intersect(rest, box);
  if (!common || IsEmpty(*common)) {
    outside.push_back(std::move(rest));
    return;
  }
  const auto add = [&](std::size_t d, std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    Box& part = outside.emplace_back(rest);
    part.offsets[d] = begin;
    part.sizes[d] = end - begin;
  };
  for (std::size_t d = 0; d < rest.sizes.size(); ++d) {
    const std::int64_t begin = common->offsets[d];
    const std::int64_t end = begin + common->sizes[d];
    add(d, rest.offsets[d], begin);
    add(d, end, rest.offsets[d] + rest.sizes[d]);
    rest.offsets[d] = begin;
    rest.sizes[d] = common->sizes[d];
  }
}

// Which dim of the source is which of the virtual data set; dims of one element have no partner.
std::optional<std::vector<std::optional<std::size_t>>> PairDims(const Box& from, const Box& to) {
  std::vector<std::optional<std::size_t>> partners(to.sizes.size());
  std::size_t s = 0;
  const auto skip_ones = [&] {
    while (s < from.sizes.size() && from.sizes[s] == 1) ++s;
  };
  for (std::size_t d = 0; d < to.sizes.size(); ++d) {
    if (to.sizes[d] == 1) continue;
    skip_ones();
    if (s == from.sizes.size() || from.sizes[s] != to.sizes[d]) return std::nullopt;
    partners[d] = s++;
  }
  skip_ones();
  if (s != from.sizes.size()) return std::nullopt;
  return partners;
}

}  // namespace

std::string PieceForm::CodingName() const {
  if (coding == Coding::kFiltered) return NamesOf(*filterings);
  return coding == Coding::kRaw ? "raw" : "fill";
}

Result<const DataSet*> FindDataSet(OpenedFile& file, std::string_view path) {
  if (const auto known = file.data_sets.find(path); known != file.data_sets.end()) {
    return &known->second;
  }
  const auto absent = [&]() -> Status {
    return Error(ErrorKind::kNotFound, "a virtual data set names a data set that is not there")
        .File(file.name)
        .Actual(Quote(path));
  };
  std::uint64_t at = file.root;
  std::string_view rest = path;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view name = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (name.empty() || name == ".") continue;
    auto group = file.groups.find(at);
    if (group == file.groups.end()) {
      CKPT_ASSIGN_OR_RETURN(const ObjectHeader header, ReadObjectHeader(*file.file, at));
      if (!IsGroup(header)) return absent();
      CKPT_ASSIGN_OR_RETURN(const std::vector<Link> links, ReadLinks(*file.file, header));
      group = file.groups.try_emplace(at).first;
      for (const Link& link : links) {
        if (link.kind == LinkKind::kHard) group->second.emplace(link.name, link.at);
      }
    }
    const auto next = group->second.find(name);
    if (next == group->second.end()) return absent();
    at = next->second;
  }
  CKPT_ASSIGN_OR_RETURN(const ObjectHeader header, ReadObjectHeader(*file.file, at));
  if (header.Find(MessageType::kLayout) == nullptr) return absent();
  CKPT_ASSIGN_OR_RETURN(DataSet set, ParseDataSet(*file.file, header));
  if (file.is_ours) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes,
                          ReadAttributes(*file.file, header));
    CKPT_RETURN_IF_ERROR(TakeChecksum(*file.file, attributes, set));
  }
  return &file.data_sets.emplace(path, std::move(set)).first->second;
}

Status PieceFinder::CountPieces(std::uint64_t count) {
  num_pieces_ += count;
  return count <= kMaxPieces && num_pieces_ <= kMaxPieces ? OkStatus() : TooManyChunks();
}

Result<Piece> PieceFinder::Fill(const OpenedFile& file, const DataSet& set, Box box) {
  CKPT_ASSIGN_OR_RETURN(const std::int64_t count, CountElements(box.sizes));
  std::uint64_t bytes = 0;
  const std::uint64_t size = file.file->file().size_bytes();
  const bool is_sane = CheckedMul(static_cast<std::uint64_t>(count), set.type.size_bytes, &bytes) &&
                       CheckedAdd(filled_bytes_, bytes, &filled_bytes_) &&
                       filled_bytes_ / kFilledPerByte <= size + kFilledBytes / kFilledPerByte;
  if (!is_sane) {
    return Error(ErrorKind::kResource, "far more elements are announced than were ever written")
        .File(file.name);
  }
  Bytes element = set.fill.empty() ? Bytes(set.type.size_bytes) : set.fill;
  Piece piece{.box = std::move(box), .file = file.name, .form = {}};
  piece.form = {.coding = Coding::kFill,
                .byte_swapped = set.type.byte_swapped,
                .strides = Dims(piece.box.sizes.size(), 0),
                .fill = MakeMemoryFile("the fill value", std::move(element))};
  return piece;
}

Result<std::vector<Piece>> PieceFinder::FindSegments(const OpenedFile& file, const DataSet& set) {
  const Box whole = WholeBox(set.shape);
  const Dims strides = ContiguousStrides(set.shape);
  const auto at_segment = [&](const Segment& segment, Box box) -> Result<Piece> {
    Piece piece{
        .box = std::move(box),
        .file = file.name,
        .offset_bytes = segment.offset_bytes,
        .size_bytes = segment.size_bytes,
        .form = {
            .byte_swapped = set.type.byte_swapped, .strides = strides, .checksum = set.checksum}};
    if (segment.file.empty()) {
      CKPT_ASSIGN_OR_RETURN(piece.offset_bytes, file.file->OffsetInFile(segment.offset_bytes));
    } else {
      CKPT_ASSIGN_OR_RETURN(piece.file, files_.Resolve(segment.file));
    }
    return piece;
  };
  std::vector<Piece> pieces;
  if (set.segments.size() == 1) {
    CKPT_ASSIGN_OR_RETURN(Piece piece, at_segment(set.segments.front(), whole));
    pieces.push_back(std::move(piece));
    return pieces;
  }
  // Several segments hold rows each.
  const std::uint64_t rows = set.shape.empty() ? 1 : static_cast<std::uint64_t>(set.shape[0]);
  CKPT_ASSIGN_OR_RETURN(const std::int64_t count, CountElements(set.shape));
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(count) / rows * set.type.size_bytes;
  std::uint64_t row = 0;
  for (const Segment& segment : set.segments) {
    if (segment.size_bytes % row_bytes != 0) {
      return file.file->Unsupported(segment.offset_bytes,
                                    "external files that are cut inside a row of their data set");
    }
    Box box = whole;
    box.offsets[0] = static_cast<std::int64_t>(row);
    box.sizes[0] = static_cast<std::int64_t>(segment.size_bytes / row_bytes);
    row += segment.size_bytes / row_bytes;
    CKPT_ASSIGN_OR_RETURN(Piece piece, at_segment(segment, std::move(box)));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

Result<std::vector<Piece>> PieceFinder::FindChunks(OpenedFile& file, const DataSet& set) {
  CKPT_ASSIGN_OR_RETURN(const std::uint64_t chunk_bytes, BytesOfChunk(set));
  CKPT_ASSIGN_OR_RETURN(const std::vector<StoredChunk> chunks, ReadChunkIndex(*file.file, set));
  const Dims& chunk_shape = set.chunked->chunk;
  const Dims strides = ContiguousStrides(chunk_shape);
  const Box whole = WholeBox(set.shape);
  std::vector<Piece> pieces;
  if (IsEmpty(whole)) return pieces;
  if (chunks.empty()) {
    CKPT_ASSIGN_OR_RETURN(Piece piece, Fill(file, set, whole));
    pieces.push_back(std::move(piece));
    return pieces;
  }
  // By what was skipped, because chunks share them.
  std::map<std::uint32_t, std::shared_ptr<const Filterings>> filterings;
  std::set<Dims> stored;
  for (const StoredChunk& chunk : chunks) {
    std::shared_ptr<const Filterings>& applied = filterings[chunk.skipped];
    if (applied == nullptr) {
      CKPT_ASSIGN_OR_RETURN(Filterings found, FilteringsOf(*file.file, set, chunk.skipped));
      applied = std::make_shared<const Filterings>(std::move(found));
    }
    if (!stored.insert(chunk.offsets).second) {
      return file.file->Bad(chunk.at, "two chunks of a data set have one place");
    }
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t offset, file.file->OffsetInFile(chunk.at));
    Piece piece{.box = Box{.offsets = chunk.offsets, .sizes = chunk_shape},
                .file = file.name,
                .offset_bytes = offset,
                .size_bytes = chunk.size_bytes,
                .form = {.coding = applied->empty() ? Coding::kRaw : Coding::kFiltered,
                         .byte_swapped = set.type.byte_swapped,
                         .strides = strides,
                         .decoded_bytes = chunk_bytes,
                         .filterings = applied}};
    pieces.push_back(CutPiece(piece, *Intersect(piece.box, whole), set.type.size_bytes));
  }
  CKPT_RETURN_IF_ERROR(AddUnwritten(file, set, stored, pieces));
  return pieces;
}

// Adds the chunks that are not in `stored`: what was never written shows the fill value.
Status PieceFinder::AddUnwritten(OpenedFile& file, const DataSet& set, const std::set<Dims>& stored,
                                 std::vector<Piece>& pieces) {
  const Dims& chunk_shape = set.chunked->chunk;
  const Box whole = WholeBox(set.shape);
  std::uint64_t grid = 1;
  for (std::size_t d = 0; d < set.shape.size(); ++d) {
    grid *= CeilDiv(static_cast<std::uint64_t>(set.shape[d]),
                    static_cast<std::uint64_t>(chunk_shape[d]));
  }
  if (stored.size() == grid) return OkStatus();
  CKPT_RETURN_IF_ERROR(CountPieces(grid - stored.size()));
  // All of them count before one is made; each shows the same element.
  CKPT_ASSIGN_OR_RETURN(Piece missing, Fill(file, set, whole));
  Dims offsets(set.shape.size(), 0);
  for (std::uint64_t c = 0; c < grid; ++c) {
    if (!stored.contains(offsets)) {
      missing.box = *Intersect(Box{.offsets = offsets, .sizes = chunk_shape}, whole);
      pieces.push_back(missing);
    }
    for (std::size_t d = offsets.size(); d-- > 0;) {
      offsets[d] += chunk_shape[d];
      if (offsets[d] < set.shape[d]) break;
      offsets[d] = 0;
    }
  }
  return OkStatus();
}

Result<OpenedFile*> PieceFinder::OpenSource(OpenedFile& from, const std::string& name) {
  if (name == ".") return &from;
  CKPT_ASSIGN_OR_RETURN(const std::string resolved, files_.Resolve(name));
  if (const auto known = sources_.find(resolved); known != sources_.end()) return &known->second;
  OpenedFile opened;
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, files_.Open(resolved));
  opened.name = resolved;
  CKPT_ASSIGN_OR_RETURN(opened.file, StructureFile::Open(std::move(file)));
  CKPT_ASSIGN_OR_RETURN(opened.root, ReadSuperblock(*opened.file));
  CKPT_ASSIGN_OR_RETURN(const ObjectHeader root, ReadObjectHeader(*opened.file, opened.root));
  CKPT_ASSIGN_OR_RETURN(const FoundAttributes attributes, ReadEachAttribute(*opened.file, root));
  CKPT_RETURN_IF_ERROR(attributes.WhyUnread(kLayoutAttribute));
  opened.is_ours = FindAttribute(attributes.read, kLayoutAttribute) != nullptr;
  return &sources_.emplace(resolved, std::move(opened)).first->second;
}

Result<std::vector<Piece>> PieceFinder::FindVirtual(OpenedFile& file, const DataSet& set) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<VirtualPart> parts, ReadVirtualMap(*file.file, set));
  std::vector<Piece> pieces;
  std::vector<Box> boxes;
  for (const VirtualPart& part : parts) {
    CKPT_ASSIGN_OR_RETURN(OpenedFile* const source, OpenSource(file, part.file));
    CKPT_ASSIGN_OR_RETURN(const DataSet* const shown, FindDataSet(*source, part.data_set));
    const bool is_same_type = shown->type.kind == set.type.kind &&
                              shown->type.dtype == set.type.dtype &&
                              shown->type.size_bytes == set.type.size_bytes;
    if (!is_same_type) {
      return Error(ErrorKind::kUnsupported,
                   "a virtual data set that converts the elements of another one")
          .File(file.name)
          .Actual(Quote(part.data_set));
    }
    const Box from = part.from ? ClipBox(*part.from, shown->shape) : WholeBox(shown->shape);
    const Box to = part.to ? ClipBox(*part.to, set.shape) : WholeBox(set.shape);
    CKPT_RETURN_IF_ERROR(CheckInside(from, shown->shape));
    CKPT_RETURN_IF_ERROR(CheckInside(to, set.shape));
    const auto partners = PairDims(from, to);
    if (!partners) {
      return Error(ErrorKind::kUnsupported, "a virtual data set that shows a box in another shape")
          .File(file.name)
          .Expected(FormatBox(to))
          .Actual(FormatBox(from));
    }
    boxes.push_back(to);
    CKPT_ASSIGN_OR_RETURN(const std::vector<Piece> sources, Find(*source, *shown, true));
    for (const Piece& piece : sources) {
      const std::optional<Box> common = Intersect(piece.box, from);
      if (!common || IsEmpty(*common)) continue;
      Piece shifted = CutPiece(piece, *common, set.type.size_bytes);
      Box box = to;
      Dims strides(to.sizes.size(), 0);
      for (std::size_t d = 0; d < to.sizes.size(); ++d) {
        if (!(*partners)[d]) continue;
        const std::size_t s = *(*partners)[d];
        box.offsets[d] = to.offsets[d] + common->offsets[s] - from.offsets[s];
        box.sizes[d] = common->sizes[s];
        strides[d] = shifted.form.strides[s];
      }
      shifted.box = std::move(box);
      shifted.form.strides = std::move(strides);
      pieces.push_back(std::move(shifted));
    }
  }
  // What no part shows is the fill value. In a file that this program wrote it is damage.
  if (!file.is_ours) CKPT_RETURN_IF_ERROR(AddGaps(file, set, std::move(boxes), pieces));
  return pieces;
}

Status PieceFinder::AddGaps(OpenedFile& file, const DataSet& set, std::vector<Box> shown,
                            std::vector<Piece>& pieces) {
  std::vector<Box> gaps;
  std::vector<Box> left = {WholeBox(set.shape)};  // that a box may still cover
  if (IsEmpty(left.front())) return OkStatus();
  std::ranges::sort(shown, {}, &Box::offsets);
  for (const Box& box : shown) {
    num_cuts_ += left.size();
    if (num_cuts_ > kMaxCuts || gaps.size() + left.size() > kMaxPieces) {
      return Error(ErrorKind::kResource, "a virtual data set has too many gaps").File(file.name);
    }
    std::vector<Box> next;
    for (Box& rest : left) {
      // The boxes that follow begin no earlier.
      const bool is_passed =
          !set.shape.empty() && rest.offsets[0] + rest.sizes[0] <= box.offsets[0];
      if (is_passed) {
        gaps.push_back(std::move(rest));
      } else {
        CutOut(std::move(rest), box, next);
      }
    }
    left = std::move(next);
  }
  std::ranges::move(left, std::back_inserter(gaps));
  for (Box& gap : gaps) {
    CKPT_ASSIGN_OR_RETURN(Piece piece, Fill(file, set, std::move(gap)));
    pieces.push_back(std::move(piece));
  }
  return OkStatus();
}

Result<std::vector<Piece>> PieceFinder::Find(OpenedFile& file, const DataSet& set, bool is_source) {
  std::vector<Piece> pieces;
  if (set.virtual_layout) {
    if (is_source) {
      return Error(ErrorKind::kUnsupported, "a virtual data set that shows a virtual one")
          .File(file.name);
    }
    CKPT_ASSIGN_OR_RETURN(pieces, FindVirtual(file, set));
  } else if (set.chunked) {
    CKPT_ASSIGN_OR_RETURN(pieces, FindChunks(file, set));
  } else if (!set.segments.empty()) {
    CKPT_ASSIGN_OR_RETURN(pieces, FindSegments(file, set));
  } else if (!IsEmpty(WholeBox(set.shape))) {
    CKPT_ASSIGN_OR_RETURN(Piece piece, Fill(file, set, WholeBox(set.shape)));
    pieces.push_back(std::move(piece));
  }
  CKPT_RETURN_IF_ERROR(CountPieces(pieces.size()));
  return pieces;
}

}  // namespace ckpt::hdf5
