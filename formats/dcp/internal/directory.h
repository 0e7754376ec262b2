// Which files of a torch.distributed.checkpoint folder describe it, and which are left over.
#ifndef CKPT_FORMATS_DCP_INTERNAL_DIRECTORY_H_
#define CKPT_FORMATS_DCP_INTERNAL_DIRECTORY_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::dcp {

// How the names of data files end.
inline constexpr std::string_view kDataSuffix = ".distcp";

// ".metadata", or one "__<rank>.metadata" a rank, in order of the rank, where ranks saved without
// talking to each other.
//
// Errors: kIncomplete (data files without metadata: an interrupted save), kNotFound (nothing of a
// checkpoint), kIo.
Result<std::vector<std::string>> FindMetadataFiles(Storage& storage, const Path& directory);

// A kIncomplete warning for a `.metadata.tmp`, a kLeftover warning for every data file that is not
// in `named`. Empty data files are not a finding: a rank without data writes one.
//
// Errors: kIo.
Result<std::vector<Problem>> FindLeftovers(Storage& storage, const Path& directory,
                                           std::span<const std::string> named);

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_INTERNAL_DIRECTORY_H_
