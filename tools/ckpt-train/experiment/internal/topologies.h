// The topologies that `experiment reshard` resumes under, and how close each must stay to the
// uninterrupted run.
#ifndef CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_TOPOLOGIES_H_
#define CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_TOPOLOGIES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/layout/value.h"
#include "trainer/mesh/topology.h"

namespace ckpt::train {

// Largest differences, relative to the uninterrupted run. Where `bit_equal`, none is allowed: loss
// and gradient norm of every step, and the state at the end.
struct Tolerance {
  bool bit_equal = false;
  double first_loss = 0;  // of the first step after resuming
  double first_norm = 0;
  double tail_loss = 0;  // of any step
  // Of any step where router biases moved: rounding turned a token's choice of experts, which is a
  // jump.
  double turned_loss = 0;
};

struct ReshardCase {
  std::string name;   // "a"
  std::string title;  // "HFSDP, EP 4": what tells it from the others
  trainer::MeshConfig mesh;
  Tolerance tolerance;
  // The case whose end this one resumes from; empty: the source run.
  std::string from;
};

// The mesh that the source run trains on: FSDP over eight ranks, which share out the experts in
// pairs.
[[nodiscard]] trainer::MeshConfig SourceMesh();

// How the runs add, which says what must be equal.
enum class ReshardSums : std::uint8_t {
  kTree,         // meshes whose sums are the same tree are bit-equal
  kTreeButNorm,  // it is rounded in the order of a rank's rows: only one mesh is bit-equal
  kCanonical,    // all are bit-equal
};

// a to k, and "back": the source's mesh again, from where c ended.
[[nodiscard]] std::vector<ReshardCase> ReshardCases(ReshardSums sums);

// The cases of these names, in the order of the list, with those they resume from. No names: all of
// them. Errors: kUsage (no case of this name).
Result<std::vector<ReshardCase>> SelectCases(std::vector<ReshardCase> cases,
                                             std::span<const std::string> names);

// "8 ranks, 2 instances, EP 2".
[[nodiscard]] std::string MeshText(const trainer::MeshConfig& mesh);
// As settings of a run; the number of ranks is none.
[[nodiscard]] layout::Configuration MeshSettings(const trainer::MeshConfig& mesh);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_TOPOLOGIES_H_
