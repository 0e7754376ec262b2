// The files that a target gets besides those with weights: copies of the source's, in which the
// configuration says the dtype of the target.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_ADD_SIDE_FILES_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_ADD_SIDE_FILES_H_

#include <vector>

#include "converters/verbs/convert.h"
#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/io/storage.h"
#include "core/tensor/dtype.h"
#include "formats/format.h"
#include "formats/weights_request.h"

namespace ckpt {

// The type that most of the weights have: what a configuration says of all of them.
[[nodiscard]] DType MainDtype(const std::vector<TargetTensor>& tensors);

// The files that are copied with the weights. Fills in `left_out_files`; that they cannot be listed
// is a warning. Errors: those of ListSideFiles, CheckFetched and CarrySideFiles.
Status AddSideFiles(Storage& storage, const Format& target, PreparedConversion& prepared,
                    WeightsRequest& request);

// What a target of one file holds besides tensors: its name, and the manifest's account of the
// source. It has no place for side files, which are left out. Call it after AddSideFiles. Errors:
// kUsage (parity), kIo.
Status FillOneFile(Storage& storage, const ConvertOptions& options, PreparedConversion& prepared,
                   WeightsRequest& request);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_ADD_SIDE_FILES_H_
