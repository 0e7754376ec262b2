#include "formats/mp_rank/internal/unread_states.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/units.h"
#include "core/base/warning.h"
#include "formats/mp_rank/internal/global_name.h"
#include "formats/mp_rank/internal/optimizer.h"
#include "formats/mp_rank/internal/optimizer_groups.h"

namespace ckpt::mp_rank {
namespace {

using torch_save::RankSet;

// Members of a file that every rank has of its own.
constexpr std::array<std::string_view, 2> kOwnStates = {kOptimizerMember, kRandomMember};
// Of an optimizer for float16 weights.
constexpr std::string_view kLossScale = ".grad_scaler.";

// Files in the directories of the ranks that are not of the set, with their bytes.
struct OtherFiles {
  std::set<std::string> names;
  std::uint64_t size_bytes = 0;
};
Result<OtherFiles> FindOtherFiles(Storage& storage, const Path& directory,
                                  const std::vector<RankDirectory>& ranks, const RankSet& set) {
  const std::set<std::string_view> read(set.names.begin(), set.names.end());
  OtherFiles others;
  for (const RankDirectory& rank : ranks) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                          storage.List(directory / rank.name));
    for (const DirectoryEntry& entry : entries) {
      const std::string name = rank.name + "/" + entry.name;
      if (entry.type != FileType::kRegular || read.contains(name)) continue;
      CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory / name));
      others.names.insert(entry.name);
      others.size_bytes += stat.size_bytes;
    }
  }
  return others;
}

}  // namespace

bool IsOwnState(std::string_view member) {
  return std::ranges::find(kOwnStates, member) != kOwnStates.end();
}

Result<std::optional<Problem>> WarnOfUnread(Storage& storage, const Path& directory,
                                            const std::vector<RankDirectory>& ranks,
                                            const RankSet& set, std::uint64_t extra_state_bytes,
                                            bool has_optimizer) {
  CKPT_ASSIGN_OR_RETURN(const OtherFiles others, FindOtherFiles(storage, directory, ranks, set));
  std::vector<std::string> states;
  for (const std::string& member : set.files.front()->members()) {
    const bool is_read = has_optimizer && member == kOptimizerMember;
    if (IsOwnState(member) && !is_read) states.push_back(member);
  }
  std::uint64_t size_bytes = others.size_bytes + extra_state_bytes;
  if (extra_state_bytes > 0) states.emplace_back(kExtraStateEnding);
  bool has_loss_scale = false;
  for (const auto& file : set.files) {
    for (const GlobalTensor& tensor : file->index().tensors()) {
      const std::string_view key = tensor.key;
      const std::string_view member = key.substr(0, key.find('.'));
      if (!IsOwnState(member)) continue;
      if (has_optimizer && member == kOptimizerMember) {
        if (key.find(kLossScale) == std::string_view::npos) continue;
        has_loss_scale = true;
      }
      size_bytes += NumBytes(tensor.shape, tensor.dtype);
    }
  }
  if (has_loss_scale) states.emplace_back("grad_scaler");
  states.insert(states.end(), others.names.begin(), others.names.end());
  if (states.empty()) return std::optional<Problem>();
  Problem warning =
      Warning(ErrorKind::kLeftover, "states of single ranks are not read", directory.string(), "");
  warning.actual = fmt::format("{}, {}", fmt::join(states, ", "), FormatByteSize(size_bytes));
  warning.hint = "open the files of the ranks one by one";
  return std::optional(std::move(warning));
}

}  // namespace ckpt::mp_rank
