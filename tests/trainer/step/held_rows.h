// What a rank holds of weights or a moment, read to the host.
#ifndef CKPT_TESTS_TRAINER_STEP_HELD_ROWS_H_
#define CKPT_TESTS_TRAINER_STEP_HELD_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "trainer/params/param_piece.h"
#include "trainer/params/param_spec.h"
#include "trainer/params/piece_rows.h"

namespace ckpt::testing {

struct HeldRows {
  trainer::ParamSpec spec;
  std::int64_t row_begin = 0;
  std::vector<float> values;
};

// All rows; `read` is ReadWeights, or ReadMoment of one moment.
inline Result<std::list<HeldRows>> ReadHeldRows(
    const std::function<Status(const trainer::PlaceRows& place)>& read) {
  std::list<HeldRows> held;
  CKPT_RETURN_IF_ERROR(read([&](const trainer::ParamPiece& piece) {
    const auto elems = static_cast<std::size_t>(piece.rows * piece.row_elems);
    held.push_back({*piece.spec, piece.row_begin, std::vector<float>(elems)});
    return std::as_writable_bytes(std::span(held.back().values));
  }));
  return held;
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_STEP_HELD_ROWS_H_
