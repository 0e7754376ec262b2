#include "formats/hdf5/internal/library_contents.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <hdf5.h>

#include "core/base/quote.h"
#include "core/base/thrown.h"
#include "formats/hdf5/internal/library_type.h"
#include "formats/hdf5/internal/names.h"

namespace ckpt::hdf5 {
namespace {

// Names that one of the library's iterations gives, in order of their bytes.
template <typename Info>
herr_t AddName(hid_t /*in*/, const char* name, const Info* /*info*/, void* names) {
  const Status added = StatusOfCall([&] {
    static_cast<std::set<std::string>*>(names)->insert(name);
    return OkStatus();
  });
  return added.ok() ? 0 : -1;  // nothing may throw through the library
}

Result<Dims> ShapeOf(const LibraryFile& file, const Handle& set) {
  const Handle space(H5Dget_space(set.id()));
  const int rank = H5Sget_simple_extent_ndims(space.id());
  if (rank < 0 || H5Sget_simple_extent_type(space.id()) == H5S_NULL) {
    return file.Fail("the HDF5 library finds no shape");
  }
  std::vector<hsize_t> dims(static_cast<std::size_t>(rank));
  H5Sget_simple_extent_dims(space.id(), dims.data(), nullptr);
  return Dims(dims.begin(), dims.end());
}

}  // namespace

Status LibraryFinds(ErrorKind kind, const LibraryFile& file, std::string_view what) {
  return Error(kind, fmt::format("the HDF5 library finds {}", what)).File(file.name());
}

Result<std::set<std::string>> LinksOf(const LibraryFile& file, const std::string& group) {
  std::set<std::string> names;
  if (group != "/" && H5Lexists(file.id(), group.c_str(), H5P_DEFAULT) == 0) return names;
  const Handle opened(H5Gopen2(file.id(), group.c_str(), H5P_DEFAULT));
  if (!opened.ok() || H5Literate(opened.id(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr,
                                 &AddName<H5L_info_t>, &names) < 0) {
    return file.Fail(fmt::format("the HDF5 library cannot list the group {}", group));
  }
  return names;
}

Result<Handle> OpenDataSet(const LibraryFile& file, const std::string& path) {
  Handle set(H5Dopen2(file.id(), path.c_str(), H5P_DEFAULT));
  if (!set.ok()) return file.Fail(fmt::format("the HDF5 library cannot open {}", Quote(path)));
  return set;
}

Result<std::set<std::string>> AttributesOf(const LibraryFile& file, const Handle& set) {
  std::set<std::string> names;
  if (H5Aiterate2(set.id(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, &AddName<H5A_info_t>, &names) <
      0) {
    return file.Fail("the HDF5 library cannot list the attributes");
  }
  return names;
}

Result<std::string> ReadText(const LibraryFile& file, const Handle& set, const std::string& name) {
  const auto fail = [&] {
    return file.Fail(fmt::format("the HDF5 library cannot read the attribute {}", name));
  };
  const Handle attribute(H5Aopen(set.id(), name.c_str(), H5P_DEFAULT));
  if (!attribute.ok()) return fail();
  const Handle type(H5Aget_type(attribute.id()));
  if (H5Tget_class(type.id()) != H5T_STRING) {
    return LibraryFinds(ErrorKind::kDtypeMismatch, file,
                        "an attribute that is not a text: " + name);
  }
  if (H5Tis_variable_str(type.id()) > 0) {
    char* text = nullptr;
    if (H5Aread(attribute.id(), type.id(), &text) < 0) return fail();
    std::string copy = text == nullptr ? "" : text;
    H5free_memory(text);
    return copy;
  }
  std::string text(H5Tget_size(type.id()), '\0');
  if (H5Aread(attribute.id(), type.id(), text.data()) < 0) return fail();
  return text;
}

Result<std::optional<std::uint32_t>> ReadCrc32(const LibraryFile& file, const Handle& set) {
  if (H5Aexists(set.id(), kCrc32Attribute) <= 0) return std::optional<std::uint32_t>();
  const Handle attribute(H5Aopen(set.id(), kCrc32Attribute, H5P_DEFAULT));
  const Handle type(H5Aget_type(attribute.id()));
  const Handle space(H5Aget_space(attribute.id()));
  if (H5Tequal(type.id(), H5T_STD_U32LE) <= 0 ||
      H5Sget_simple_extent_type(space.id()) != H5S_SCALAR) {
    return LibraryFinds(ErrorKind::kDtypeMismatch, file,
                        "an attribute crc32 that is not one unsigned number of 32 bits");
  }
  std::uint32_t crc32 = 0;
  if (H5Aread(attribute.id(), H5T_NATIVE_UINT32, &crc32) < 0) {
    return file.Fail("the HDF5 library cannot read the attribute crc32");
  }
  return std::optional(crc32);
}

Status CheckElements(const LibraryFile& file, const Handle& set, DType dtype, DimsView shape) {
  const Handle type(H5Dget_type(set.id()));
  const Handle expected = LibraryType(dtype);
  if (!type.ok() || H5Tequal(type.id(), expected.id()) <= 0) {
    return LibraryFinds(ErrorKind::kDtypeMismatch, file, "another element type")
        .Expected(fmt::format("{} ({})", DTypeName(dtype), DescribeType(expected.id())))
        .Actual(DescribeType(type.id()));
  }
  CKPT_ASSIGN_OR_RETURN(const Dims found, ShapeOf(file, set));
  if (std::ranges::equal(found, shape)) return OkStatus();
  return LibraryFinds(ErrorKind::kShapeMismatch, file, "another shape")
      .Expected(FormatDims(shape))
      .Actual(FormatDims(found));
}

}  // namespace ckpt::hdf5
