// Plans a file of compressed tensors.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_PLAN_CHUNKED_H_
#define CKPT_FORMATS_HDF5_INTERNAL_PLAN_CHUNKED_H_

#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "formats/weights_request.h"

namespace ckpt::hdf5 {

// Data sets in chunks of whole rows, a zstd frame each, which has a checksum. The structure is made
// when their places are known. Errors: kUnsupported (a row that no chunk can hold). REQUIRES:
// `request.zstd_level`, and that the request was checked (PlanHdf5).
Result<WritePlan> PlanChunked(const WeightsRequest& request);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_PLAN_CHUNKED_H_
