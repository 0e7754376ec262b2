// The parts of a `.metadata` that are not needed to find a tensor.
#ifndef CKPT_FORMATS_DCP_INTERNAL_METADATA_EXTRAS_H_
#define CKPT_FORMATS_DCP_INTERNAL_METADATA_EXTRAS_H_

#include <string>
#include <vector>

#include "formats/dcp/internal/metadata_reducer.h"
#include "formats/dcp/metadata.h"
#include "formats/pickle/graph.h"

namespace ckpt::dcp {

// Fills `extras` from the state of the Metadata object, keeping what an earlier file filled in.
// What cannot be understood is left out, with a warning: tensors can be read without it.
//
// REQUIRES: `state` is a dict.
void ReadExtras(const pickle::Graph& graph, pickle::NodeId state, const std::string& file,
                MetadataReducer& reducer, const DimsPool& dims, MetadataExtras& extras,
                std::vector<Problem>& warnings);

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_INTERNAL_METADATA_EXTRAS_H_
