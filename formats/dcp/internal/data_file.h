// The data files of a checkpoint, by the names that its metadata give them.
#ifndef CKPT_FORMATS_DCP_INTERNAL_DATA_FILE_H_
#define CKPT_FORMATS_DCP_INTERNAL_DATA_FILE_H_

#include <memory>
#include <string_view>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::dcp {

// `name` is relative and comes from a file. Errors: kUnsafePath, kMissingFile, kIo.
Result<std::shared_ptr<const ReadableFile>> OpenDataFile(Storage& storage, const Path& directory,
                                                         std::string_view name);

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_INTERNAL_DATA_FILE_H_
