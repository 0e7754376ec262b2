// Where the tensors of a source lie, for a target that shows them there.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_LINK_TENSORS_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_LINK_TENSORS_H_

#include <map>
#include <string>
#include <vector>

#include "converters/verbs/convert.h"
#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "formats/weights_request.h"

namespace ckpt {

// By the key in the target. A box that is stored several times occurs once. Reads what locates the
// chunks, and no elements.
//
// Errors: kUnsupported for every tensor that is not stored as plain elements, in C order and little
// endian: compressed, strided, big-endian, lazily negated or conjugated ones; those of
// CheckpointSource::Locate.
Result<std::map<std::string, std::vector<LinkedBox>>> LinkTensors(const ModelSource& model,
                                                                  const ConvertOptions& options);

// Whether `written` shows the tensors where `links` says. Errors: kValueMismatch, kMissing, those
// of CheckpointSource::Locate.
Status CheckLinks(const CheckpointSource& written, const ModelSource& model,
                  const std::map<std::string, std::vector<LinkedBox>>& links);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_LINK_TENSORS_H_
