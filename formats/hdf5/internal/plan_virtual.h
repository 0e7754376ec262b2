// Plans files of elements, and one that shows them.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_PLAN_VIRTUAL_H_
#define CKPT_FORMATS_HDF5_INTERNAL_PLAN_VIRTUAL_H_

#include "core/checkpoint/write_plan.h"
#include "formats/weights_request.h"

namespace ckpt::hdf5 {

// The first file shows every tensor as a virtual data set; the parts beside it (PartNames) hold
// rows of them as contiguous ones. REQUIRES: the request, which says how many parts there are or
// how large they become, was checked (PlanHdf5).
[[nodiscard]] WritePlan PlanVirtual(const WeightsRequest& request);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_PLAN_VIRTUAL_H_
