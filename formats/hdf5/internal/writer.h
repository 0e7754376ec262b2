// Plans a new HDF5 file.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_WRITER_H_
#define CKPT_FORMATS_HDF5_INTERNAL_WRITER_H_

#include "core/base/result.h"
#include "formats/weights_request.h"

namespace ckpt::hdf5 {

// Elements first, the structure behind them (docs/formats/hdf5.md). Every tensor in one piece that
// begins at a multiple of 64 bytes; or in zstd frames; or in several files beside the one that
// shows them; or where it lies already. Errors: kUsage (something asked for that the format does
// not have), kAlreadyExists (a key twice), kUnsupported (more than 32 dims), kResource.
Result<PlannedCheckpoint> PlanHdf5(WeightsRequest request);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_WRITER_H_
