#include "converters/verbs/internal/lost_copies.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "converters/verbs/comparison.h"
#include "core/base/task_pool.h"
#include "core/checkpoint/differing_copies.h"

namespace ckpt {
namespace {

// An entry with copies: one of the two.
struct Copied {
  const GlobalTensor* tensor = nullptr;
  const ObjectEntry* object = nullptr;
  std::uint64_t size_bytes = 0;  // of all copies

  [[nodiscard]] const std::string& key() const {
    return tensor != nullptr ? tensor->key : object->key;
  }
};

std::vector<Copied> FindCopied(const PreparedConversion& prepared) {
  std::set<std::string> left_out;
  for (LeftOutEntry& entry : prepared.left_out()) left_out.insert(std::move(entry.key));
  const CheckpointIndex& index = prepared.model.source().index();
  std::vector<Copied> copied;
  for (const GlobalTensor& tensor : index.tensors()) {
    const std::size_t copies = index.NumCopies(tensor);
    if (copies < 2 || left_out.contains(tensor.key)) continue;
    copied.push_back(
        {.tensor = &tensor, .size_bytes = copies * NumBytes(tensor.shape, tensor.dtype)});
  }
  for (const ObjectEntry& object : index.objects()) {
    if (index.copies(object).empty() || left_out.contains(object.key)) continue;
    copied.push_back({.object = &object});
  }
  return copied;
}

}  // namespace

Result<LostCopies> FindLostCopies(const PreparedConversion& prepared,
                                  const ConvertOptions& options) {
  LostCopies lost;
  const CheckpointSource& source = prepared.model.source();
  if (!source.index().ranks_saved_alone()) return lost;
  const std::vector<Copied> copied = FindCopied(prepared);
  if (options.progress != nullptr) {
    std::uint64_t bytes = 0;
    for (const Copied& entry : copied) bytes += entry.size_bytes;
    options.progress->OnPhase("compare", bytes, copied.size());
  }
  const std::uint64_t budget =
      options.memory_budget_bytes / static_cast<std::uint64_t>(std::max(options.threads, 1));
  std::vector<DifferingCopies> differing(copied.size());
  std::vector<Status> failures(copied.size());
  const auto compare = [&](std::size_t i, std::size_t /*worker*/) -> Status {
    const Copied& entry = copied[i];
    Result<DifferingCopies> compared = entry.tensor != nullptr
                                           ? CompareCopies(source, *entry.tensor, budget)
                                           : CompareCopies(source, *entry.object);
    if (options.progress != nullptr) options.progress->OnDone(entry.key(), entry.size_bytes);
    if (compared.ok()) {
      differing[i] = *std::move(compared);
      return OkStatus();
    }
    failures[i] = std::move(compared).status().Tensor(entry.key()).While("comparing its copies");
    return IsOfSystem(failures[i].kind()) ? failures[i] : OkStatus();
  };
  CKPT_RETURN_IF_ERROR(RunTasks(copied.size(), options.threads, options.stop, compare));
  for (std::size_t i = 0; i < copied.size(); ++i) {
    // Whoever wrote the target has read what it takes, so these are errors of other copies.
    for (Problem problem : failures[i].problems()) {
      problem.severity = Severity::kWarning;
      lost.warnings.push_back(std::move(problem));
    }
    if (differing[i].empty()) continue;
    lost.warnings.push_back(WarnOfCopies(differing[i]));
    for (const auto& [copy, bytes] : differing[i].bytes) {
      lost.left_out.push_back(
          {NameOfCopy(differing[i].key, copy), bytes, "another rank stored other values"});
    }
  }
  return lost;
}

}  // namespace ckpt
