// Plans a file with every tensor in one piece.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_PLAN_CONTIGUOUS_H_
#define CKPT_FORMATS_HDF5_INTERNAL_PLAN_CONTIGUOUS_H_

#include "core/checkpoint/write_plan.h"
#include "formats/weights_request.h"

namespace ckpt::hdf5 {

// Contiguous data sets, whose elements begin at multiples of kAlignment. REQUIRES: the request was
// checked (PlanHdf5).
[[nodiscard]] WritePlan PlanContiguous(const WeightsRequest& request);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_PLAN_CONTIGUOUS_H_
