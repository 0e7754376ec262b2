// ParamPiece: the rows of a parameter that one rank owns.
#ifndef CKPT_TRAINER_PARAMS_PARAM_PIECE_H_
#define CKPT_TRAINER_PARAMS_PARAM_PIECE_H_

#include <cstdint>
#include <vector>

#include "trainer/params/param_spec.h"
#include "trainer/params/shard_plan.h"

namespace ckpt::trainer {

// One rank's rows of one parameter, as the optimizer updates, a checkpoint stores and a norm counts
// them.
struct ParamPiece {
  const ParamSpec* spec = nullptr;
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  std::int64_t row_elems = 0;
  // In the group's main arrays (main weights, moments, gradient): the element where the piece
  // starts.
  std::int64_t main_offset = 0;
};

// The pieces of a group's main arrays, in order of position. They point to the specs of `unit`,
// which is the group's unit.
[[nodiscard]] std::vector<ParamPiece> ListPieces(const UnitSpec& unit, const GroupPlan& group);

// How many rows of a piece are set at once when weights are loaded: about a million elements, and
// one row at least.
[[nodiscard]] std::int64_t RowsAtOnce(const ParamPiece& piece);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_PARAM_PIECE_H_
