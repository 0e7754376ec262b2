#include "tools/ckpt-inspect/selection.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/base/glob.h"
#include "core/checkpoint/no_match.h"
#include "core/checkpoint/unlisted.h"

namespace ckpt::inspect {
namespace {

template <typename Entry>
std::vector<const Entry*> Select(std::span<const Entry> entries, const std::string& glob) {
  std::vector<const Entry*> selected;
  for (const Entry& entry : entries) {
    if (MatchesGlob(entry.key, glob)) selected.push_back(&entry);
  }
  return selected;
}

}  // namespace

bool MatchesGlob(const std::string& key, const std::string& glob) {
  return glob.empty() || ckpt::MatchesGlob(glob, key);
}

bool IsTrainingState(std::string_view key) {
  constexpr std::array<std::string_view, 12> kPrefixes = {
      "optimizer.",    "optimizers.",    "optimizer_state_dict.",
      "optim.",        "app.optimizer.", "app.optim.",
      "chained_",      "rng_state",      "dataloader.",
      "lr_scheduler.", "scheduler.",     "train_state."};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return key.starts_with(prefix); });
}

std::vector<const GlobalTensor*> SelectTensors(const CheckpointIndex& index,
                                               const std::string& glob) {
  return Select(index.tensors(), glob);
}

std::vector<const ObjectEntry*> SelectObjects(const CheckpointIndex& index,
                                              const std::string& glob) {
  return Select(index.objects(), glob);
}

Status CheckMatchesSome(const CheckpointIndex& index, const std::string& glob, Among among) {
  if (glob.empty() || !SelectTensors(index, glob).empty()) return OkStatus();
  if (among == Among::kTensorsAndObjects && !SelectObjects(index, glob).empty()) return OkStatus();
  CKPT_RETURN_IF_ERROR(CheckNothingUnlisted(index, glob));
  if (among == Among::kTensors) return NoTensorMatches("--match", glob, index);
  return NoKeyMatches("--match", glob, KeysOfEntries(index));
}

Status CheckNothingUnlisted(const CheckpointIndex& index, const std::string& glob) {
  std::vector<Problem> errors = ErrorsOfUnlisted(index);
  std::erase_if(errors, [&](const Problem& error) { return !MatchesGlob(error.tensor, glob); });
  return Status(std::move(errors));
}

std::uint64_t LogicalBytes(const GlobalTensor& tensor) {
  const Result<std::uint64_t> bytes = CountBytes(tensor.shape, tensor.dtype);
  return bytes.ok() ? *bytes : std::numeric_limits<std::uint64_t>::max();
}

}  // namespace ckpt::inspect
