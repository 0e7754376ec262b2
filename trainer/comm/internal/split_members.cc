#include "trainer/comm/internal/split_members.h"

#include <algorithm>
#include <cstddef>

#include "trainer/comm/exchange_values.h"

namespace ckpt::trainer {

Result<std::vector<int>> SplitMembers(HostGroup& parent, int color, int key) {
  struct Choice {
    int color = 0;
    int key = 0;
  };
  CKPT_ASSIGN_OR_RETURN(const std::vector<Choice> choices,
                        ExchangeValues(parent, Choice{color, key}));
  std::vector<int> members;
  for (int rank = 0; rank < parent.size(); ++rank) {
    if (choices[static_cast<std::size_t>(rank)].color == color) members.push_back(rank);
  }
  std::ranges::stable_sort(members, {},
                           [&](int rank) { return choices[static_cast<std::size_t>(rank)].key; });
  return members;
}

}  // namespace ckpt::trainer
