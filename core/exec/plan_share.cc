#include "core/exec/plan_share.h"

#include <cstddef>
#include <optional>

namespace ckpt {

std::vector<FileMaker> MakersOfFiles(const WritePlan& plan, std::span<const int> item_writers) {
  std::vector<std::optional<int>> only(plan.files.size());
  std::vector<FileMaker> makers(plan.files.size());
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const std::uint32_t file = plan.items[i].file;
    if (!only[file]) only[file] = item_writers[i];
    if (*only[file] != item_writers[i]) makers[file].is_filled_by_many = true;
  }
  for (std::size_t f = 0; f < makers.size(); ++f) {
    if (!makers[f].is_filled_by_many) makers[f].process = only[f].value_or(0);
  }
  return makers;
}

PlanShare ShareOf(const WritePlan& plan, std::span<const int> item_writers,
                  std::span<const FileMaker> makers, int process) {
  PlanShare share;
  for (const FileMaker& maker : makers) share.files.push_back(maker.process == process);
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    share.items.push_back(item_writers[i] == process);
  }
  return share;
}

}  // namespace ckpt
