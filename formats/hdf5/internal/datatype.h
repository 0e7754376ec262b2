// The element types of data sets and attributes.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_DATATYPE_H_
#define CKPT_FORMATS_HDF5_INTERNAL_DATATYPE_H_

#include <cstdint>
#include <string>

#include "core/base/result.h"
#include "core/tensor/dtype.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {

enum class TypeKind : std::uint8_t {
  kNumber,    // that a tensor can hold
  kText,      // of fixed length
  kLongText,  // of any length, in the global heap
  kOther,     // `name` says what
};

// How a text that is shorter than its fixed length ends.
enum class TextEnd : std::uint8_t {
  kFirstNul,   // NUL-terminated: what is behind the first one is no part of it
  kLastNuls,   // NUL-padded, as NumPy's bytes
  kLastSpaces  // space-padded, as Fortran's
};

struct Datatype {
  TypeKind kind = TypeKind::kOther;
  DType dtype = DType::kUint8;  // of a number
  bool byte_swapped = false;    // big-endian
  std::uint64_t size_bytes = 0;
  bool is_enum = false;                   // a number with names, which are not kept
  TextEnd text_end = TextEnd::kFirstNul;  // of kText
  std::string name;                       // "string", "compound", …: for messages and objects
};

// Reads one datatype and leaves `fields` behind it. Errors: kBadMetadata.
Result<Datatype> ParseDatatype(const StructureFile& file, FieldReader& fields);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_DATATYPE_H_
