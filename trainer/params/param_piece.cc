#include "trainer/params/param_piece.h"

#include <algorithm>
#include <cstddef>

#include "trainer/params/flat_layout.h"

namespace ckpt::trainer {
namespace {

constexpr std::int64_t kStagedElems = std::int64_t{1} << 20;

}  // namespace

std::vector<ParamPiece> ListPieces(const UnitSpec& unit, const GroupPlan& group) {
  std::vector<ParamPiece> pieces;
  for (const RowRange& rows : RowsWithin(group.layout, group.main.begin, group.main.end())) {
    const auto tensor = static_cast<std::size_t>(rows.tensor);
    pieces.push_back({.spec = &unit.params[group.params[tensor]],
                      .row_begin = rows.row_begin,
                      .rows = rows.rows,
                      .row_elems = group.layout.row_elems[tensor],
                      .main_offset = rows.flat_begin - group.main.begin});
  }
  return pieces;
}

std::int64_t RowsAtOnce(const ParamPiece& piece) {
  return std::max<std::int64_t>(1, std::min(kStagedElems / piece.row_elems, piece.rows));
}

}  // namespace ckpt::trainer
