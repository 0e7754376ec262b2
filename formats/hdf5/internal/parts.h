// The files of elements that lie beside a target of several files: docs/formats/hdf5.md.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_PARTS_H_
#define CKPT_FORMATS_HDF5_INTERNAL_PARTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::hdf5 {

// "out.h5" → "out-00001-of-00002.h5", "out-00002-of-00002.h5"; or with "-b" behind the numbers, if
// one of those is in use.
[[nodiscard]] std::vector<std::string> PartNames(const std::string& target, std::uint64_t total,
                                                 std::span<const std::string> in_use);

// Whether `file`, which lies beside `target`, has one of these names, and was written by this
// program to hold elements of another file. Errors: kAlreadyExists (it has the name alone: it may
// be a checkpoint of its own), those of a file that cannot be read.
Result<bool> IsPart(Storage& storage, const Path& target, const Path& file);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_PARTS_H_
