// A folder of zarr arrays, as old Megatron-Core saves a checkpoint, as a CheckpointSource.
#ifndef CKPT_FORMATS_ZARR_INTERNAL_SOURCE_H_
#define CKPT_FORMATS_ZARR_INTERNAL_SOURCE_H_

#include <memory>
#include <string_view>

#include "core/checkpoint/source.h"
#include "core/io/storage.h"

namespace ckpt::zarr {

// What metadata.json calls the backend.
inline constexpr std::string_view kName = "zarr";

// A tensor for each folder with `.zarray`; an object for each file of torch.save in the others, and
// the common state. Errors: kUnsupported (metadata.json names another backend), kBadMetadata,
// those of OpenTorchFile (common.pt), kIo. What concerns single keys goes to index().problems().
Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& directory);

}  // namespace ckpt::zarr

#endif  // CKPT_FORMATS_ZARR_INTERNAL_SOURCE_H_
