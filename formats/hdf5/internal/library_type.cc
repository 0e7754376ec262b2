#include "formats/hdf5/internal/library_type.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <hdf5.h>

namespace ckpt::hdf5 {

Handle LibraryType(DType dtype) {
  const auto complex_of = [](hid_t part) {
    const std::size_t bytes = H5Tget_size(part);
    Handle type(H5Tcreate(H5T_COMPOUND, 2 * bytes));
    H5Tinsert(type.id(), "r", 0, part);
    H5Tinsert(type.id(), "i", bytes, part);
    return type;
  };
  const auto copy = [](hid_t type) { return Handle(H5Tcopy(type)); };
  switch (dtype) {
    case DType::kBool: {
      Handle type(H5Tenum_create(H5T_STD_I8LE));
      for (const std::int8_t value : {std::int8_t{0}, std::int8_t{1}}) {
        H5Tenum_insert(type.id(), value == 0 ? "FALSE" : "TRUE", &value);
      }
      return type;
    }
    case DType::kFloat16: {
      Handle type = copy(H5T_IEEE_F32LE);
      H5Tset_fields(type.id(), 15, 10, 5, 0, 10);
      H5Tset_size(type.id(), 2);
      H5Tset_ebias(type.id(), 15);
      return type;
    }
    case DType::kFloat32:
      return copy(H5T_IEEE_F32LE);
    case DType::kFloat64:
      return copy(H5T_IEEE_F64LE);
    case DType::kComplex64:
      return complex_of(H5T_IEEE_F32LE);
    case DType::kComplex128:
      return complex_of(H5T_IEEE_F64LE);
    case DType::kInt8:
      return copy(H5T_STD_I8LE);
    case DType::kInt16:
      return copy(H5T_STD_I16LE);
    case DType::kInt32:
      return copy(H5T_STD_I32LE);
    case DType::kInt64:
      return copy(H5T_STD_I64LE);
    default: {
      Handle type = copy(H5T_STD_U8LE);  // of a type that HDF5 lacks, the bits
      H5Tset_precision(type.id(), 8 * ElementBytes(dtype));
      H5Tset_size(type.id(), ElementBytes(dtype));
      return type;
    }
  }
}

std::string DescribeType(LibraryId type) {
  constexpr std::string_view kClasses[] = {"integer", "float",           "time",     "text",
                                           "bits",    "opaque",          "compound", "reference",
                                           "enum",    "variable length", "array"};
  const int type_class = H5Tget_class(type);
  const bool is_known = type_class >= 0 && type_class < static_cast<int>(std::size(kClasses));
  return fmt::format("{} of {} bytes{}", is_known ? kClasses[type_class] : "unknown",
                     H5Tget_size(type), H5Tget_order(type) == H5T_ORDER_BE ? ", big-endian" : "");
}

}  // namespace ckpt::hdf5
