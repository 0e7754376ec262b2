#include "core/exec/internal/schedule.h"

#include <algorithm>
#include <map>

#include "core/exec/nest_reader.h"
#include "core/tensor/blocks.h"
#include "core/tensor/box.h"

namespace ckpt {
namespace {

// The budget with which one thread reads most of the source once: three quarters of what is
// written. A few tensors that need more do not keep the threads from the rest.
Result<std::uint64_t> BudgetOfMostBytes(const ConversionPlan& plan, const CheckpointSource& source,
                                        const std::function<bool(std::size_t item)>& writes) {
  std::map<std::uint64_t, std::uint64_t> bytes_by_budget;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < plan.write.items.size(); ++i) {
    const WriteItem& item = plan.write.items[i];
    if (!writes(i) || IsEmpty(item.box)) continue;
    const TensorRecipe& recipe = plan.recipes[item.tensor];
    const auto window_elements =
        static_cast<std::int64_t>(kMaxWindowBytes / ElementBytes(recipe.source_dtype));
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t budget,
                          NestReader::BudgetToReadOnce(source, recipe, item.box,
                                                       FirstBlock(item.box, window_elements)));
    bytes_by_budget[budget] += item.payload_bytes;
    total += item.payload_bytes;
  }
  std::uint64_t reached = 0;
  for (const auto& [budget, bytes] : bytes_by_budget) {
    reached += bytes;
    if (reached < total - total / 4) continue;
    return budget == 0 ? 0 : budget + kNumWindows * kMaxWindowBytes;
  }
  return 0;
}

}  // namespace

std::vector<Batch> CutIntoBatches(const ConversionPlan& plan,
                                  const std::set<std::uint32_t>& read_in_order,
                                  std::size_t threads) {
  std::vector<Batch> batches;
  std::map<std::uint32_t, std::size_t> batch_of;  // by position of the source's tensor
  for (std::size_t t = 0; t < plan.write.tensors.size(); ++t) {
    const std::vector<layout::Nest>& nests = plan.recipes[t].nests;
    // One thread reads all in the order of the plan.
    if (threads > 1 && !nests.empty() && read_in_order.contains(nests.front().source)) {
      const auto [found, is_new] = batch_of.emplace(nests.front().source, batches.size());
      if (!is_new) {
        batches[found->second].push_back(t);
        continue;
      }
    }
    batches.push_back({t});
  }
  return batches;
}

Result<std::size_t> CountWorkers(const ConversionPlan& plan, const CheckpointSource& source,
                                 std::uint64_t budget_bytes, int threads,
                                 const std::function<bool(std::size_t item)>& writes) {
  const auto asked = static_cast<std::size_t>(std::max(threads, 1));
  // The start of a compressed item is known only when the item before it has ended. So tensors are
  // written one after the other, and the threads encode.
  if (plan.write.compression || asked == 1) return 1;
  // Half of the threads wait for the file or the disk while the others compute. One thread does all
  // things in order.
  const std::size_t most = 2 * asked;
  // Where a thread's share of the budget is too small to read a transposed matrix once, it is read
  // again and again: fewer threads are faster.
  CKPT_ASSIGN_OR_RETURN(const std::uint64_t needed, BudgetOfMostBytes(plan, source, writes));
  return std::clamp<std::size_t>(budget_bytes / std::max<std::uint64_t>(needed, 1), 1, most);
}

}  // namespace ckpt
