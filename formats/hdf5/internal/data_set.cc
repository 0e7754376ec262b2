#include "formats/hdf5/internal/data_set.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "formats/hdf5/internal/local_heap.h"

namespace ckpt::hdf5 {
namespace {

Status ParseContiguous(const StructureFile& file, FieldReader& fields, DataSet& set) {
  const std::uint64_t at = fields.U64();
  const std::uint64_t size = fields.U64();
  if (!fields.ok()) return file.Bad(fields.at(), "a layout is cut off");
  if (at != kUndefined)
    set.segments.push_back({.file = {}, .offset_bytes = at, .size_bytes = size});
  return OkStatus();
}

Status ParseCompact(const StructureFile& file, FieldReader& fields, DataSet& set) {
  const std::uint16_t size = fields.U16();
  const std::uint64_t at = fields.at();
  fields.Skip(size);
  if (!fields.ok()) return file.Bad(at, "the elements in a layout message are cut off");
  set.segments.push_back({.file = {}, .offset_bytes = at, .size_bytes = size});
  return OkStatus();
}

// The last of the dims is the size of an element.
Status TakeChunkDims(const StructureFile& file, FieldReader& fields, std::size_t rank_and_element,
                     std::size_t bytes_of_dim, const DataSet& set, ChunkedLayout& chunked) {
  std::uint64_t element = 0;
  for (std::size_t d = 0; d < rank_and_element; ++d) {
    element = fields.Uint(bytes_of_dim);
    constexpr std::uint64_t kMaxChunkDim = 0xffffffff;
    if (element == 0 || element > kMaxChunkDim) {
      return file.Bad(fields.at(), "a dim of a chunk has no sensible size");
    }
    if (d + 1 < rank_and_element) chunked.chunk.push_back(static_cast<std::int64_t>(element));
  }
  if (chunked.chunk.size() != set.shape.size() || element != set.type.size_bytes) {
    return file.Bad(fields.at(), "the chunks of a data set do not fit its shape and element type");
  }
  return OkStatus();
}

Status ParseOldChunked(const StructureFile& file, FieldReader& fields, DataSet& set) {
  ChunkedLayout chunked;
  const std::uint8_t rank = fields.U8();
  chunked.index_at = fields.U64();
  CKPT_RETURN_IF_ERROR(TakeChunkDims(file, fields, rank, 4, set, chunked));
  set.chunked = std::move(chunked);
  return OkStatus();
}

Status ParseNewChunked(const StructureFile& file, FieldReader& fields, DataSet& set) {
  constexpr std::uint8_t kKeepsPartialChunks = 0x01;
  constexpr std::uint8_t kSingleIsFiltered = 0x02;
  ChunkedLayout chunked;
  const std::uint8_t flags = fields.U8();
  const std::uint8_t rank = fields.U8();
  const std::uint8_t bytes_of_dim = fields.U8();
  if (bytes_of_dim == 0 || bytes_of_dim > 8) return file.Bad(fields.at(), "a layout is damaged");
  CKPT_RETURN_IF_ERROR(TakeChunkDims(file, fields, rank, bytes_of_dim, set, chunked));
  chunked.keeps_partial_chunks = (flags & kKeepsPartialChunks) != 0;
  switch (fields.U8()) {
    case 1:
      chunked.index = ChunkIndexKind::kSingle;
      if ((flags & kSingleIsFiltered) != 0) {
        chunked.single_bytes = fields.U64();
        chunked.single_mask = fields.U32();
      }
      break;
    case 2:
      chunked.index = ChunkIndexKind::kImplicit;
      break;
    case 3:
      chunked.index = ChunkIndexKind::kFixedArray;
      fields.Skip(1);
      break;
    case 4:
      chunked.index = ChunkIndexKind::kOther;
      fields.Skip(5);
      break;
    case 5:
      chunked.index = ChunkIndexKind::kOther;
      fields.Skip(6);
      break;
    default:
      return file.Bad(fields.at(), "an unknown kind of chunk index");
  }
  chunked.index_at = fields.U64();
  set.chunked = std::move(chunked);
  return OkStatus();
}

Status ParseLayout(const StructureFile& file, const Message& message, DataSet& set) {
  FieldReader fields = message.fields();
  const std::uint8_t version = fields.U8();
  if (version < 3) return file.Unsupported(message.at, "a layout as HDF5 before 1.6.3 wrote it");
  if (version > 5) return file.Unsupported(message.at, "a layout of an unknown version");
  switch (fields.U8()) {
    case 0:
      CKPT_RETURN_IF_ERROR(ParseCompact(file, fields, set));
      break;
    case 1:
      CKPT_RETURN_IF_ERROR(ParseContiguous(file, fields, set));
      break;
    case 2:
      CKPT_RETURN_IF_ERROR(version == 3 ? ParseOldChunked(file, fields, set)
                                        : ParseNewChunked(file, fields, set));
      break;
    case 3: {
      const std::uint64_t heap_at = fields.U64();
      set.virtual_layout = {.heap_at = heap_at, .heap_index = fields.U32()};
      break;
    }
    default:
      return file.Bad(message.at, "a layout of an unknown class");
  }
  if (!fields.ok()) return file.Bad(message.at, "a layout is cut off");
  return OkStatus();
}

Status ParseFilters(const StructureFile& file, const Message& message, DataSet& set) {
  FieldReader fields = message.fields();
  const std::uint8_t version = fields.U8();
  const std::uint8_t count = fields.U8();
  if (version != 1 && version != 2) return file.Bad(message.at, "filters of an unknown version");
  if (version == 1) fields.Skip(6);
  for (std::uint8_t f = 0; f < count; ++f) {
    constexpr std::uint16_t kFirstNamed = 256;
    Filter filter;
    filter.id = fields.U16();
    const bool has_name = version == 1 || filter.id >= kFirstNamed;
    const std::uint16_t name_bytes = has_name ? fields.U16() : std::uint16_t{0};
    fields.Skip(2);
    const std::uint16_t num_values = fields.U16();
    const std::string_view name = AsText(fields.Take(name_bytes));
    filter.name = name.substr(0, name.find('\0'));
    if (version == 1) fields.Skip((8U - name_bytes % 8U) % 8U);
    fields.Skip(std::uint64_t{4} * num_values);
    if (version == 1 && num_values % 2 != 0) fields.Skip(4);
    set.filters.push_back(std::move(filter));
  }
  if (!fields.ok()) return file.Bad(message.at, "the filters of a data set are cut off");
  return OkStatus();
}

Status ParseFill(const StructureFile& file, const Message& message, DataSet& set) {
  FieldReader fields = message.fields();
  bool has_value = true;
  if (message.type == MessageType::kFillValue) {
    const std::uint8_t version = fields.U8();
    if (version == 3) {
      has_value = (fields.U8() & 0x20) != 0;
    } else {
      fields.Skip(2);
      const bool is_defined = fields.U8() != 0;
      has_value = version == 1 || is_defined;
    }
  }
  const std::uint32_t size = has_value ? fields.U32() : 0;
  const ByteSpan value = fields.Take(size);
  if (!fields.ok()) return file.Bad(message.at, "a fill value is cut off");
  const bool is_zero = std::ranges::all_of(value, [](std::byte b) { return b == std::byte{0}; });
  if (is_zero) return OkStatus();
  if (value.size() != set.type.size_bytes) {
    return file.Bad(message.at, "a fill value is not one element");
  }
  set.fill.assign(value.begin(), value.end());
  return OkStatus();
}

Status ParseExternalFiles(StructureFile& file, const Message& message, DataSet& set) {
  constexpr std::uint64_t kMaxPathBytes = 4096;  // Linux opens no file of a longer path
  FieldReader fields = message.fields();
  fields.Skip(6);
  const std::uint16_t count = fields.U16();
  CKPT_ASSIGN_OR_RETURN(const LocalHeap heap, LocalHeap::Open(file, fields.U64()));
  set.segments.clear();
  for (std::uint16_t s = 0; s < count; ++s) {
    Segment segment;
    CKPT_ASSIGN_OR_RETURN(segment.file, heap.NameAt(file, fields.U64(), kMaxPathBytes));
    segment.offset_bytes = fields.U64();
    segment.size_bytes = fields.U64();
    if (segment.file.empty()) return file.Bad(message.at, "an external file without a name");
    set.segments.push_back(std::move(segment));
  }
  if (!fields.ok()) return file.Bad(message.at, "the list of external files is cut off");
  return OkStatus();
}

// Segments hold at least the elements; what is past these does not belong to the data set.
Status CutSegments(const StructureFile& file, const ObjectHeader& header, DataSet& set) {
  if (set.segments.empty()) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const std::int64_t count, CountElements(set.shape));
  std::uint64_t left = 0;
  if (!CheckedMul(static_cast<std::uint64_t>(count), set.type.size_bytes, &left)) {
    return Error(ErrorKind::kResource, "the size of a data set overflows")
        .Actual(FormatDims(set.shape));
  }
  const std::uint64_t wanted = left;
  for (Segment& segment : set.segments) {
    segment.size_bytes = std::min(segment.size_bytes, left);
    left -= segment.size_bytes;
  }
  if (left != 0) {
    return Error(ErrorKind::kSizeMismatch, "fewer bytes are stored than the data set needs")
        .File(fmt::format("{} [{}]", file.file().name(), header.at))
        .Expected(fmt::format("{} bytes", wanted))
        .Actual(fmt::format("{} bytes", wanted - left));
  }
  std::erase_if(set.segments, [](const Segment& segment) { return segment.size_bytes == 0; });
  return OkStatus();
}

}  // namespace

Result<Dataspace> ParseDataspace(const StructureFile& file, FieldReader& fields) {
  const std::uint64_t at = fields.at();
  const std::uint8_t version = fields.U8();
  const std::uint8_t rank = fields.U8();
  const std::uint8_t flags = fields.U8();
  Dataspace space;
  if (version == 1) {
    fields.Skip(5);
  } else if (version == 2) {
    space.is_null = fields.U8() == 2;
  } else {
    return file.Bad(at, "a dataspace of an unknown version");
  }
  if (rank > kMaxRank) return file.Bad(at, "a dataspace of more than 32 dims");
  for (std::uint8_t d = 0; d < rank; ++d) {
    const std::uint64_t dim = fields.U64();
    if (dim > static_cast<std::uint64_t>(INT64_MAX)) return file.Bad(at, "a dim past 63 bits");
    space.shape.push_back(static_cast<std::int64_t>(dim));
  }
  space.max_shape = space.shape;
  const bool may_grow = (flags & 0x01) != 0;
  for (std::uint8_t d = 0; may_grow && d < rank; ++d) {
    constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};
    const std::uint64_t max = fields.U64();
    if (std::cmp_less(max, space.shape[d]) ||
        (max != kNoLimit && std::cmp_greater(max, kUnlimited))) {
      return file.Bad(at, "a dim may not grow to what it is");
    }
    space.max_shape[d] = max == kNoLimit ? kUnlimited : static_cast<std::int64_t>(max);
  }
  if (!fields.ok()) return file.Bad(at, "a dataspace is cut off");
  return space;
}

Result<DataSet> ParseDataSet(StructureFile& file, const ObjectHeader& header) {
  DataSet set;
  const Message* const space = header.Find(MessageType::kDataspace);
  const Message* const type = header.Find(MessageType::kDatatype);
  const Message* const layout = header.Find(MessageType::kLayout);
  if (space == nullptr || type == nullptr || layout == nullptr) {
    return file.Bad(header.at, "a data set without a shape, an element type or a layout");
  }
  for (const Message& message : header.messages) {
    const bool is_needed = message.type != MessageType::kAttribute;
    if (!message.is_shared || !is_needed) continue;
    return file.Unsupported(message.at, "a data set whose element type is stored elsewhere");
  }
  FieldReader space_fields = space->fields();
  CKPT_ASSIGN_OR_RETURN(Dataspace dataspace, ParseDataspace(file, space_fields));
  set.is_null = dataspace.is_null;
  set.shape = std::move(dataspace.shape);
  set.max_shape = std::move(dataspace.max_shape);
  CKPT_RETURN_IF_ERROR(CountElements(set.shape).status());
  FieldReader type_fields = type->fields();
  CKPT_ASSIGN_OR_RETURN(set.type, ParseDatatype(file, type_fields));
  CKPT_RETURN_IF_ERROR(ParseLayout(file, *layout, set));
  for (const Message& message : header.messages) {
    switch (message.type) {
      case MessageType::kFilters:
        CKPT_RETURN_IF_ERROR(ParseFilters(file, message, set));
        break;
      case MessageType::kOldFillValue:
      case MessageType::kFillValue:
        CKPT_RETURN_IF_ERROR(ParseFill(file, message, set));
        break;
      case MessageType::kExternalFiles:
        CKPT_RETURN_IF_ERROR(ParseExternalFiles(file, message, set));
        break;
      default:
        break;
    }
  }
  CKPT_RETURN_IF_ERROR(CutSegments(file, header, set));
  return set;
}

}  // namespace ckpt::hdf5
