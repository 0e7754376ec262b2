#include "formats/hdf5/internal/datatype.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace ckpt::hdf5 {
namespace {

// Types nest: compounds of arrays of compounds.
constexpr int kMaxTypeDepth = 16;

// The classes of the file format, by number.
constexpr std::array<std::string_view, 12> kClassNames = {
    "integer",  "float",     "time", "string",          "bitfield", "opaque",
    "compound", "reference", "enum", "variable length", "array",    "complex"};
enum Class : std::uint8_t {
  kInteger,
  kFloat,
  kTime,
  kString,
  kBitfield,
  kOpaque,
  kCompound,
  kReference,
  kEnum,
  kVariableLength,
  kArray,
  kComplex
};

// How the bits of a floating-point element are laid out.
struct FloatForm {
  std::uint64_t size_bytes;
  std::uint8_t exponent_at;  // which is also the width of the mantissa, from bit 0
  std::uint8_t exponent_bits;
  std::uint32_t bias;
  DType dtype;
};
constexpr std::array<FloatForm, 6> kFloatForms = {{{2, 10, 5, 15, DType::kFloat16},
                                                   {2, 7, 8, 127, DType::kBfloat16},
                                                   {4, 23, 8, 127, DType::kFloat32},
                                                   {8, 52, 11, 1023, DType::kFloat64},
                                                   {1, 3, 4, 7, DType::kFloat8E4m3fn},
                                                   {1, 2, 5, 15, DType::kFloat8E5m2}}};

std::optional<DType> IntegerOf(std::uint64_t size_bytes, bool is_signed) {
  switch (size_bytes) {
    case 1:
      return is_signed ? DType::kInt8 : DType::kUint8;
    case 2:
      return is_signed ? DType::kInt16 : DType::kUint16;
    case 4:
      return is_signed ? DType::kInt32 : DType::kUint32;
    case 8:
      return is_signed ? DType::kInt64 : DType::kUint64;
    default:
      return std::nullopt;
  }
}

struct Member {
  std::string_view name;
  std::uint64_t offset = 0;
  Datatype type;
};

class Parser {
 public:
  Parser(const StructureFile& file, FieldReader& fields)
      : file_(file), fields_(fields), begin_(fields.at()) {}

  Result<Datatype> Parse(int depth) {
    if (depth > kMaxTypeDepth) return file_.Bad(begin_, "a datatype nests too deep");
    Head head;
    const std::uint8_t class_and_version = fields_.U8();
    head.version = class_and_version >> 4;
    head.bits = static_cast<std::uint32_t>(fields_.Uint(3));
    const std::uint8_t number = class_and_version & 0x0f;
    if (number >= kClassNames.size() || head.version < 1 || head.version > 5) {
      return file_.Bad(begin_, "a datatype of an unknown class or version");
    }
    Datatype type;
    type.size_bytes = fields_.U32();
    type.name = kClassNames[number];
    switch (number) {
      case kInteger:
        ParseInteger(head, type);
        break;
      case kFloat:
        ParseFloat(head, type);
        break;
      case kString:
        ParseText(head, type);
        break;
      case kTime:
        fields_.Skip(2);
        break;
      case kBitfield:
        fields_.Skip(4);
        break;
      case kOpaque:
        fields_.Skip(head.bits & 0xff);
        break;
      case kCompound:
        CKPT_RETURN_IF_ERROR(ParseCompound(head, depth, type));
        break;
      case kEnum:
        CKPT_RETURN_IF_ERROR(ParseEnum(head, depth, type));
        break;
      case kVariableLength:
        CKPT_RETURN_IF_ERROR(Parse(depth + 1).status());
        if ((head.bits & 0x0f) == 1) {
          type.kind = TypeKind::kLongText;
          type.name = "string";
        }
        break;
      case kArray: {
        const std::uint8_t rank = fields_.U8();
        fields_.Skip((head.version < 3 ? 3 : 0) +
                     std::uint64_t{4} * rank * (head.version < 3 ? 2 : 1));
        CKPT_RETURN_IF_ERROR(Parse(depth + 1).status());
        break;
      }
      case kComplex:
        CKPT_RETURN_IF_ERROR(ParseComplex(head, depth, type));
        break;
      default:  // kReference: nothing follows
        break;
    }
    if (!fields_.ok()) return file_.Bad(begin_, "a datatype is cut off");
    if (type.kind != TypeKind::kOther && type.size_bytes == 0) {
      return file_.Bad(begin_, "a datatype of no bytes");
    }
    return type;
  }

 private:
  struct Head {
    std::uint8_t version = 0;
    std::uint32_t bits = 0;
  };

  void ParseInteger(const Head& head, Datatype& type) {
    const std::uint16_t bit_offset = fields_.U16();
    const std::uint16_t precision = fields_.U16();
    const std::optional<DType> dtype = IntegerOf(type.size_bytes, (head.bits & 0x08) != 0);
    if (!dtype || bit_offset != 0 || precision != 8 * type.size_bytes) return;
    type.kind = TypeKind::kNumber;
    type.dtype = *dtype;
    type.byte_swapped = (head.bits & 0x01) != 0;
  }

  void ParseFloat(const Head& head, Datatype& type) {
    const std::uint16_t bit_offset = fields_.U16();
    const std::uint16_t precision = fields_.U16();
    const std::uint8_t exponent_at = fields_.U8();
    const std::uint8_t exponent_bits = fields_.U8();
    const std::uint8_t mantissa_at = fields_.U8();
    const std::uint8_t mantissa_bits = fields_.U8();
    const std::uint32_t bias = fields_.U32();
    const bool is_vax = (head.bits & 0x40) != 0;
    const bool has_hidden_bit = ((head.bits >> 4) & 0x03) == 2;
    const std::uint32_t sign_at = (head.bits >> 8) & 0xff;
    for (const FloatForm& form : kFloatForms) {
      const bool is_this = !is_vax && has_hidden_bit && bit_offset == 0 && mantissa_at == 0 &&
                           type.size_bytes == form.size_bytes && precision == 8 * form.size_bytes &&
                           sign_at == precision - 1U && exponent_at == form.exponent_at &&
                           mantissa_bits == form.exponent_at &&
                           exponent_bits == form.exponent_bits && bias == form.bias;
      if (!is_this) continue;
      type.kind = TypeKind::kNumber;
      type.dtype = form.dtype;
      type.byte_swapped = (head.bits & 0x01) != 0;
    }
  }

  // A name, which older versions pad to eight bytes.
  std::string_view Name(const Head& head) {
    const std::uint64_t begin = fields_.at();
    const std::string_view name = fields_.TextToNul();
    if (head.version < 3) fields_.Skip((8 - (fields_.at() - begin) % 8) % 8);
    return name;
  }

  // Two floats named r and i, as numpy has complex numbers.
  Status ParseCompound(const Head& head, int depth, Datatype& type) {
    std::vector<Member> members;
    for (std::uint32_t m = 0; m < (head.bits & 0xffff); ++m) {
      Member member;
      member.name = Name(head);
      std::size_t offset_bytes = 4;
      if (head.version >= 3) {
        offset_bytes = 1;
        while (offset_bytes < 4 && (type.size_bytes >> (8 * offset_bytes)) != 0) ++offset_bytes;
      }
      member.offset = fields_.Uint(offset_bytes);
      if (head.version == 1) fields_.Skip(1 + 3 + 4 + 4 + 16);
      CKPT_ASSIGN_OR_RETURN(member.type, Parse(depth + 1));
      members.push_back(std::move(member));
    }
    if (members.size() != 2) return OkStatus();
    const Datatype& part = members[0].type;
    const bool is_complex =
        members[0].name == "r" && members[1].name == "i" && part.kind == TypeKind::kNumber &&
        members[0].offset == 0 && members[1].offset == part.size_bytes &&
        members[1].type.dtype == part.dtype && members[1].type.byte_swapped == part.byte_swapped &&
        members[1].type.kind == TypeKind::kNumber && type.size_bytes == 2 * part.size_bytes;
    if (is_complex) TakeParts(part, type);
    return OkStatus();
  }

  // HDF5's own complex numbers, from 2.0 on.
  Status ParseComplex(const Head& head, int depth, Datatype& type) {
    constexpr std::uint32_t kOfEqualParts = 0x01;  // and otherwise zeros: real and imaginary part
    CKPT_ASSIGN_OR_RETURN(const Datatype part, Parse(depth + 1));
    const bool is_known = head.bits == kOfEqualParts && part.kind == TypeKind::kNumber &&
                          type.size_bytes == 2 * part.size_bytes;
    if (is_known) TakeParts(part, type);
    return OkStatus();
  }

  // Makes `type` the complex number of two floats; other parts have none.
  static void TakeParts(const Datatype& part, Datatype& type) {
    const bool is_known = part.dtype == DType::kFloat16 || part.dtype == DType::kFloat32 ||
                          part.dtype == DType::kFloat64;
    if (!is_known) return;
    type.kind = TypeKind::kNumber;
    type.byte_swapped = part.byte_swapped;
    type.dtype = part.dtype == DType::kFloat16   ? DType::kComplex32
                 : part.dtype == DType::kFloat32 ? DType::kComplex64
                                                 : DType::kComplex128;
  }

  // Its padding or its characters may be of a version that is not known here: then what it is,
  // nobody can say.
  static void ParseText(const Head& head, Datatype& type) {
    constexpr std::uint32_t kUtf8 = 1;  // 0: ASCII
    const std::uint32_t padding = head.bits & 0x0f;
    const std::uint32_t characters = head.bits >> 4 & 0x0f;
    if (padding > static_cast<std::uint32_t>(TextEnd::kLastSpaces) || characters > kUtf8) return;
    type.kind = TypeKind::kText;
    type.text_end = static_cast<TextEnd>(padding);
  }

  // FALSE and TRUE in one byte, as h5py stores bools; of any other enum the numbers.
  Status ParseEnum(const Head& head, int depth, Datatype& type) {
    CKPT_ASSIGN_OR_RETURN(const Datatype base, Parse(depth + 1));
    const std::uint32_t count = head.bits & 0xffff;
    std::vector<std::string_view> names;
    for (std::uint32_t m = 0; m < count && fields_.ok(); ++m) names.push_back(Name(head));
    const ByteSpan values = fields_.Take(base.size_bytes * count);
    if (!fields_.ok() || base.kind != TypeKind::kNumber || base.size_bytes != type.size_bytes) {
      return OkStatus();
    }
    const std::uint64_t size_bytes = type.size_bytes;
    type = base;
    type.size_bytes = size_bytes;
    const bool is_bool = count == 2 && size_bytes == 1 && names[0] == "FALSE" &&
                         names[1] == "TRUE" && values[0] == std::byte{0} &&
                         values[1] == std::byte{1};
    if (is_bool) type.dtype = DType::kBool;
    type.is_enum = !is_bool;
    return OkStatus();
  }

  const StructureFile& file_;
  FieldReader& fields_;
  std::uint64_t begin_;
};

}  // namespace

Result<Datatype> ParseDatatype(const StructureFile& file, FieldReader& fields) {
  return Parser(file, fields).Parse(0);
}

}  // namespace ckpt::hdf5
