#include "trainer/data/internal/packing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "core/base/check.h"

namespace ckpt::trainer {
namespace {

using Numbers = std::vector<std::uint32_t>;

Numbers Count(std::size_t count) {
  Numbers numbers(count);
  std::iota(numbers.begin(), numbers.end(), std::uint32_t{0});
  return numbers;
}

// Groups items by their pack, and numbers the packs by their first item.
Packs GroupByPack(const Numbers& pack_of, std::size_t num_packs) {
  constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  Numbers renumbered(num_packs, kNone);
  Numbers begins(num_packs + 1, 0);
  std::uint32_t next = 0;
  for (const std::uint32_t pack : pack_of) {
    if (renumbered[pack] == kNone) renumbered[pack] = next++;
    ++begins[renumbered[pack] + 1];
  }
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  Numbers ends(begins.begin(), begins.end() - 1);
  Numbers members(pack_of.size());
  for (std::uint32_t item = 0; item < pack_of.size(); ++item) {
    members[ends[renumbered[pack_of[item]]]++] = item;
  }
  return {std::move(members), std::move(begins)};
}

}  // namespace

Packs PackBestFit(std::span<const std::uint32_t> sizes, std::uint32_t capacity) {
  CKPT_CHECK(sizes.size() < std::numeric_limits<std::uint32_t>::max());
  Numbers largest_first = Count(sizes.size());
  std::ranges::sort(largest_first, [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(sizes[b], a) < std::pair(sizes[a], b);
  });
  Numbers pack_of(sizes.size());
  std::map<std::uint32_t, Numbers> packs_by_space;  // no list is empty
  std::uint32_t num_packs = 0;
  for (const std::uint32_t item : largest_first) {
    const std::uint32_t size = sizes[item];
    CKPT_CHECK(size <= capacity);
    std::uint32_t pack = num_packs;
    std::uint32_t space = capacity;
    if (const auto tightest = packs_by_space.lower_bound(size); tightest != packs_by_space.end()) {
      space = tightest->first;
      pack = tightest->second.back();
      tightest->second.pop_back();
      if (tightest->second.empty()) packs_by_space.erase(tightest);
    } else {
      ++num_packs;
    }
    pack_of[item] = pack;
    packs_by_space[space - size].push_back(pack);
  }
  return GroupByPack(pack_of, num_packs);
}

Packs PackAlone(std::size_t num_items) { return {Count(num_items), Count(num_items + 1)}; }

}  // namespace ckpt::trainer
