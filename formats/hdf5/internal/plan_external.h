// Plans a file whose tensors lie in other files already.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_PLAN_EXTERNAL_H_
#define CKPT_FORMATS_HDF5_INTERNAL_PLAN_EXTERNAL_H_

#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "formats/weights_request.h"

namespace ckpt::hdf5 {

// Whether a reader follows all links: only into files that are named as weights are
// (DataFiles::Resolve). Errors: kUnsupported, of all tensors. REQUIRES: `request.links`.
Status CheckLinks(const WeightsRequest& request);

// The structure alone. A tensor whose boxes are rows one behind the other is a data set with
// external storage; one that is cut otherwise is a virtual data set of such ones. REQUIRES:
// CheckLinks, and that the request was checked (PlanHdf5).
[[nodiscard]] WritePlan PlanExternal(const WeightsRequest& request);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_PLAN_EXTERNAL_H_
