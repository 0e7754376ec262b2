// Items cut where their rows come from several files, so that several processes can write one
// tensor.
#ifndef CKPT_CORE_PLAN_CUT_ITEMS_H_
#define CKPT_CORE_PLAN_CUT_ITEMS_H_

#include <map>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/checkpoint/write_plan.h"
#include "core/plan/follow_chunks.h"

namespace ckpt {

// Puts an item for each row block in place of the one that holds a whole tensor; the bytes of the
// files stay. `rows` has the blocks of every tensor, by its key, which tile it in order.
//
// Errors: kUnsupported (the format frames or compresses its items, stores a tensor in several, or
// says of them what is known only after they were written).
Status CutItems(const std::map<std::string, std::vector<RowsFromFile>>& rows, WritePlan& plan);

}  // namespace ckpt

#endif  // CKPT_CORE_PLAN_CUT_ITEMS_H_
