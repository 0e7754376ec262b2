#include "trainer/comm/internal/split_members.h"

#include <algorithm>
#include <cstddef>
#include <span>

namespace ckpt::trainer {

Result<std::vector<int>> SplitMembers(HostGroup& parent, int color, int key) {
  struct Choice {
    int color = 0;
    int key = 0;
  };
  const Choice mine{color, key};
  std::vector<Choice> choices(static_cast<std::size_t>(parent.size()));
  CKPT_RETURN_IF_ERROR(parent.Exchange(std::as_bytes(std::span(&mine, 1)),
                                       std::as_writable_bytes(std::span(choices))));
  std::vector<int> members;
  for (int rank = 0; rank < parent.size(); ++rank) {
    if (choices[static_cast<std::size_t>(rank)].color == color) members.push_back(rank);
  }
  std::ranges::stable_sort(members, {},
                           [&](int rank) { return choices[static_cast<std::size_t>(rank)].key; });
  return members;
}

}  // namespace ckpt::trainer
