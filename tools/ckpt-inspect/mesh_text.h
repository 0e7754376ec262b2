// Meshes as people write them: "dp=8,hsdp=2,ep=4".
#ifndef CKPT_TOOLS_CKPT_INSPECT_MESH_TEXT_H_
#define CKPT_TOOLS_CKPT_INSPECT_MESH_TEXT_H_

#include <string_view>

#include "core/base/result.h"
#include "trainer/mesh/topology.h"

namespace ckpt::inspect {

// `dp` is the number of all ranks, `ep` of those that divide the experts. The ranks form `hsdp`
// replicas of a group that divides all state, or `hfsdp` that divide main weights and the optimizer
// again among them. `sharding` is what a group divides, as Megatron spells it; all state if it is
// not said.
//
// Errors: kUsage (another word, a word twice, no number from 1 to 1,000,000, no `dp`).
Result<trainer::MeshConfig> ParseMesh(std::string_view text);

// What the text that gave `mesh` calls its parts.
trainer::MeshWords WordsOfMesh(const trainer::MeshConfig& mesh);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_MESH_TEXT_H_
