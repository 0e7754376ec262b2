#include "formats/hdf5/internal/attribute.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/checked_math.h"
#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/json/json_writer.h"
#include "core/tensor/cast.h"
#include "formats/hdf5/internal/dense_links.h"
#include "formats/hdf5/internal/global_heap.h"
#include "formats/hdf5/internal/names.h"

namespace ckpt::hdf5 {
namespace {

// A large table belongs into a data set.
constexpr std::uint64_t kMaxRenderedBytes = 64 * kMiB;
// Quotes and a comma around a text: of empty ones a few bytes may announce any number.
constexpr std::uint64_t kBytesAround = 3;
// An element of text in the global heap: length, address of the heap, number in it.
constexpr std::uint64_t kLongTextBytes = 16;

// Fills in `attribute`; its name even if the rest is not understood.
Status ParseAttribute(const StructureFile& file, FieldReader fields, Attribute& attribute) {
  const std::uint64_t at = fields.at();
  const std::uint8_t version = fields.U8();
  if (version < 1 || version > 3) return file.Bad(at, "an attribute of an unknown version");
  const std::uint8_t flags = fields.U8();
  const std::uint16_t name_bytes = fields.U16();
  const std::uint16_t type_bytes = fields.U16();
  const std::uint16_t space_bytes = fields.U16();
  if (version == 3) fields.Skip(1);
  const std::uint64_t step = version == 1 ? 8 : 1;
  const auto take = [&](std::uint64_t length) {
    const std::uint64_t part_at = fields.at();
    const ByteSpan part = fields.Take(length);
    fields.Skip((step - length % step) % step);
    return FieldReader(part, part_at);
  };
  attribute.name = take(name_bytes).TextToNul();
  FieldReader type = take(type_bytes);
  FieldReader space = take(space_bytes);
  if (!fields.ok()) return file.Bad(at, "an attribute is cut off");
  if (version > 1 && flags != 0) {
    return file.Unsupported(at, "an attribute whose type or shape is stored elsewhere");
  }
  CKPT_ASSIGN_OR_RETURN(attribute.type, ParseDatatype(file, type));
  CKPT_ASSIGN_OR_RETURN(attribute.space, ParseDataspace(file, space));
  CKPT_ASSIGN_OR_RETURN(const std::int64_t count, CountElements(attribute.space.shape));
  std::uint64_t size = 0;
  if (attribute.space.is_null) return OkStatus();
  attribute.at = fields.at();
  if (!CheckedMul(static_cast<std::uint64_t>(count), attribute.type.size_bytes, &size) ||
      size > fields.left()) {
    return file.Bad(at, "the value of an attribute is cut off");
  }
  const ByteSpan value = fields.Take(size);
  attribute.value.assign(value.begin(), value.end());
  return OkStatus();
}

void AddAttribute(const StructureFile& file, FieldReader fields, bool has_checksum,
                  FoundAttributes& found) {
  Attribute attribute;
  attribute.has_checksum = has_checksum;
  Status status = ParseAttribute(file, fields, attribute);
  if (status.ok()) {
    found.read.push_back(std::move(attribute));
  } else {
    found.unread.push_back({std::move(attribute.name), std::move(status)});
  }
}

// Those that a heap holds.
Status AddDenseAttributes(StructureFile& file, const Message& message, FoundAttributes& found) {
  FieldReader fields = message.fields();
  fields.Skip(1);
  if ((fields.U8() & 0x01) != 0) fields.Skip(2);
  const std::uint64_t heap = fields.U64();
  const std::uint64_t index = fields.U64();
  if (!fields.ok()) return file.Bad(message.at, "the account of the attributes is cut off");
  if (heap == kUndefined) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const std::vector<DenseRecord> records,
                        ReadDenseAttributes(file, heap, index));
  for (const DenseRecord& record : records) {
    AddAttribute(file, FieldReader(record.body, record.at), false, found);
  }
  return OkStatus();
}

// The text of one element.
Result<std::string> ElementText(StructureFile& file, const Attribute& attribute, ByteSpan element) {
  if (attribute.type.kind == TypeKind::kText) {
    const std::string_view text = AsText(element);
    const TextEnd end = attribute.type.text_end;
    if (end == TextEnd::kFirstNul) return std::string(text.substr(0, text.find('\0')));
    const char padding = end == TextEnd::kLastNuls ? '\0' : ' ';
    return std::string(text.substr(0, text.find_last_not_of(padding) + 1));
  }
  FieldReader fields(element, attribute.at);
  const std::uint32_t length = fields.U32();
  const std::uint64_t heap = fields.U64();
  const std::uint32_t index = fields.U32();
  if (length == 0) return std::string();
  CKPT_ASSIGN_OR_RETURN(const ByteSpan text, ReadHeapObject(file, heap, index));
  if (length > text.size()) return file.Bad(attribute.at, "a text is longer than its heap says");
  return std::string(AsText(text).substr(0, length));
}

template <typename T>
void WriteInteger(ByteSpan element, JsonWriter& json) {
  constexpr std::int64_t kExact = std::int64_t{1} << 53;
  const auto value = LoadLe<T>(element.data());
  const bool is_exact =
      std::cmp_less_equal(value, kExact) && std::cmp_greater_equal(value, -kExact);
  if (is_exact) {
    json.Int(value);
  } else {
    json.BeginObject().Key("$int").Text(std::to_string(value)).End();
  }
}

void WriteFloat(DType dtype, ByteSpan element, JsonWriter& json) {
  Bytes wide(sizeof(double));
  if (dtype == DType::kFloat64) {
    wide.assign(element.begin(), element.end());
  } else {
    CastElements(dtype, element, DType::kFloat64, wide);
  }
  const auto value = LoadLe<double>(wide.data());
  if (std::isfinite(value)) {
    json.Double(value);
    return;
  }
  const std::string_view word = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  json.BeginObject().Key("$float").Text(word).End();
}

// REQUIRES: the type is one that HasValue.
void WriteNumber(const Datatype& type, ByteSpan stored, JsonWriter& json) {
  Bytes element(stored.begin(), stored.end());
  if (type.byte_swapped) std::reverse(element.begin(), element.end());
  switch (type.dtype) {
    case DType::kBool:
      json.Bool(element[0] != std::byte{0});
      break;
    case DType::kUint8:
      WriteInteger<std::uint8_t>(element, json);
      break;
    case DType::kUint16:
      WriteInteger<std::uint16_t>(element, json);
      break;
    case DType::kUint32:
      WriteInteger<std::uint32_t>(element, json);
      break;
    case DType::kUint64:
      WriteInteger<std::uint64_t>(element, json);
      break;
    case DType::kInt8:
      WriteInteger<std::int8_t>(element, json);
      break;
    case DType::kInt16:
      WriteInteger<std::int16_t>(element, json);
      break;
    case DType::kInt32:
      WriteInteger<std::int32_t>(element, json);
      break;
    case DType::kInt64:
      WriteInteger<std::int64_t>(element, json);
      break;
    default:
      WriteFloat(type.dtype, element, json);
      break;
  }
}

bool IsText(const Datatype& type) {
  return type.kind == TypeKind::kText ||
         (type.kind == TypeKind::kLongText && type.size_bytes == kLongTextBytes);
}

bool HasValue(const Datatype& type) {
  if (IsText(type)) return true;
  return type.kind == TypeKind::kNumber &&
         (type.dtype == DType::kBool || IsInteger(type.dtype) || IsCastable(type.dtype));
}

class Renderer {
 public:
  Renderer(StructureFile& file, const Attribute& attribute) : file_(file), attribute_(attribute) {}

  Result<RenderedObject> Render() {
    RenderedObject object;
    const Datatype& type = attribute_.type;
    if (attribute_.space.is_null) {
      object.type = "NoneType";
      json_.Null();
    } else if (!HasValue(type)) {
      object.type = "HDF5." + type.name;
      json_.BeginObject().Key("$opaque").Text(object.type).End();
    } else {
      type_ = !attribute_.space.shape.empty() ? "list"
              : IsText(type)                  ? "str"
              : type.dtype == DType::kBool    ? "bool"
              : IsInteger(type.dtype)         ? "int"
                                              : "float";
      CKPT_RETURN_IF_ERROR(Write(0));
      object.type = type_;
    }
    object.json = json_.Take();
    return object;
  }

 private:
  Status Write(std::size_t dim) {
    if (dim == attribute_.space.shape.size()) return WriteElement();
    // An array without elements may have any number of empty ones.
    CKPT_RETURN_IF_ERROR(Count(2));
    json_.BeginArray();
    for (std::int64_t i = 0; i < attribute_.space.shape[dim]; ++i) {
      CKPT_RETURN_IF_ERROR(Write(dim + 1));
    }
    json_.End();
    return OkStatus();
  }

  Status WriteElement() {
    const std::uint64_t size = attribute_.type.size_bytes;
    const ByteSpan element = ByteSpan(attribute_.value).subspan(size * next_++, size);
    if (!IsText(attribute_.type)) {
      WriteNumber(attribute_.type, element, json_);
      return OkStatus();
    }
    CKPT_ASSIGN_OR_RETURN(const std::string text, ElementText(file_, attribute_, element));
    CKPT_RETURN_IF_ERROR(Count(text.size() + kBytesAround));
    if (IsUtf8(text)) {
      json_.Text(text);
    } else {
      // Older files have other character sets, of which nothing says which.
      if (attribute_.space.shape.empty()) type_ = "bytes";
      json_.BeginObject().Key("$bytes").Text(HexOf(AsBytes(text))).End();
    }
    return OkStatus();
  }

  // Before so many bytes are written.
  Status Count(std::uint64_t num_bytes) {
    written_ += num_bytes;
    if (written_ <= kMaxRenderedBytes) return OkStatus();
    return Error(ErrorKind::kResource, "the text of an attribute is too long");
  }

  StructureFile& file_;
  const Attribute& attribute_;
  JsonWriter json_;
  std::string_view type_;
  std::uint64_t next_ = 0;
  std::uint64_t written_ = 0;
};

}  // namespace

Status FoundAttributes::WhyUnread(std::string_view name) const {
  for (const UnreadAttribute& attribute : unread) {
    const bool is_damaged =
        attribute.name.empty() && attribute.why.kind() != ErrorKind::kUnsupported;
    if (attribute.name == name || is_damaged) return attribute.why;
  }
  return OkStatus();
}

Result<FoundAttributes> ReadEachAttribute(StructureFile& file, const ObjectHeader& header) {
  FoundAttributes found;
  for (const Message& message : header.messages) {
    Status status;
    if (message.type == MessageType::kAttribute && message.is_shared) {
      status = file.Unsupported(message.at, "an attribute that several objects share");
    } else if (message.type == MessageType::kAttribute) {
      AddAttribute(file, message.fields(), header.has_checksums, found);
    } else if (message.type == MessageType::kAttributeInfo) {
      status = AddDenseAttributes(file, message, found);
    }
    if (status.ok()) continue;
    if (IsUnread(status.kind())) return status;
    found.unread.push_back({.name = {}, .why = std::move(status)});
  }
  return found;
}

Result<std::vector<Attribute>> ReadAttributes(StructureFile& file, const ObjectHeader& header) {
  CKPT_ASSIGN_OR_RETURN(FoundAttributes found, ReadEachAttribute(file, header));
  if (!found.unread.empty()) return std::move(found.unread.front().why);
  return std::move(found.read);
}

const Attribute* FindAttribute(const std::vector<Attribute>& attributes, std::string_view name) {
  const auto found = std::ranges::find(attributes, name, &Attribute::name);
  return found == attributes.end() ? nullptr : &*found;
}

Status TakeChecksum(const StructureFile& file, const std::vector<Attribute>& attributes,
                    DataSet& set) {
  const Attribute* const attribute = FindAttribute(attributes, kCrc32Attribute);
  if (attribute == nullptr) return OkStatus();
  const Datatype& type = attribute->type;
  const bool is_one_number = type.kind == TypeKind::kNumber && type.dtype == DType::kUint32 &&
                             !type.byte_swapped && attribute->space.shape.empty() &&
                             attribute->value.size() == sizeof(std::uint32_t);
  if (!is_one_number) {
    return file.Bad(attribute->at, "the attribute crc32 is not one unsigned number of 32 bits");
  }
  if (set.segments.size() != 1 || !set.segments[0].file.empty()) return OkStatus();
  const Segment& stored = set.segments[0];
  CKPT_ASSIGN_OR_RETURN(const std::uint64_t offset, file.OffsetInFile(stored.offset_bytes));
  set.checksum = std::make_shared<const StoredCrc32>(
      StoredCrc32{.offset_bytes = offset,
                  .size_bytes = stored.size_bytes,
                  .crc32 = LoadLe<std::uint32_t>(attribute->value.data())});
  return OkStatus();
}

Result<std::optional<std::string>> TextOf(StructureFile& file, const Attribute& attribute) {
  const bool is_one_text =
      !attribute.space.is_null && attribute.space.shape.empty() && IsText(attribute.type);
  if (!is_one_text) return std::optional<std::string>();
  CKPT_ASSIGN_OR_RETURN(std::string text, ElementText(file, attribute, attribute.value));
  return std::optional(std::move(text));
}

Result<RenderedObject> Render(StructureFile& file, const Attribute& attribute) {
  return Renderer(file, attribute).Render();
}

}  // namespace ckpt::hdf5
