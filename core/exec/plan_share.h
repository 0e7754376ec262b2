// What one of several processes writes of a plan that all of them carry out together.
#ifndef CKPT_CORE_EXEC_PLAN_SHARE_H_
#define CKPT_CORE_EXEC_PLAN_SHARE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/checkpoint/write_plan.h"
#include "core/io/storage.h"

namespace ckpt {

// The process that makes a file, with what it holds besides items.
struct FileMaker {
  int process = 0;
  bool is_filled_by_many = false;  // items of several processes lie in it
};

// Parallel to the plan's files. A file is made by the process that writes all its items; one
// without items, or with items of several, by process 0. `item_writers` is parallel to the plan's
// items.
[[nodiscard]] std::vector<FileMaker> MakersOfFiles(const WritePlan& plan,
                                                   std::span<const int> item_writers);

struct PlanShare {
  std::vector<bool> files;  // parallel to the plan's: those that this process makes
  std::vector<bool> items;  // parallel to the plan's: those that it writes
  // Files that are there already, of the planned size, and open: those that several processes fill.
  // By position.
  std::map<std::uint32_t, std::shared_ptr<WritableFile>> open = {};
};

// What `process` writes. `open` is left to the caller: all processes must agree that a file is
// there before one opens it.
[[nodiscard]] PlanShare ShareOf(const WritePlan& plan, std::span<const int> item_writers,
                                std::span<const FileMaker> makers, int process);

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_PLAN_SHARE_H_
