// What the HDF5 library finds in a file: groups, data sets, their attributes and types.
//
// All functions: a LibraryLock is held. Errors: kBadMetadata (the library refuses to answer).
#ifndef CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_CONTENTS_H_
#define CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_CONTENTS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "formats/hdf5/internal/library.h"

namespace ckpt::hdf5 {

// An error about `file`: it holds `what`, and not what was planned.
Status LibraryFinds(ErrorKind kind, const LibraryFile& file, std::string_view what);

// Names of the links of a group; none if the group is not there.
Result<std::set<std::string>> LinksOf(const LibraryFile& file, const std::string& group);

Result<Handle> OpenDataSet(const LibraryFile& file, const std::string& path);

// Names of the attributes of a data set.
Result<std::set<std::string>> AttributesOf(const LibraryFile& file, const Handle& set);
// Errors: also kDtypeMismatch.
Result<std::string> ReadText(const LibraryFile& file, const Handle& set, const std::string& name);
// What a data set with bytes of its own says of them. Errors: also kDtypeMismatch.
Result<std::optional<std::uint32_t>> ReadCrc32(const LibraryFile& file, const Handle& set);

// Errors: also kDtypeMismatch, kShapeMismatch.
Status CheckElements(const LibraryFile& file, const Handle& set, DType dtype, DimsView shape);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_CONTENTS_H_
