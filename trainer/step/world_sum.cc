#include "trainer/step/world_sum.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace ckpt::trainer {

Status SumOverRanks(HostGroup& world, std::span<ExactSum> sums) {
  constexpr std::size_t kLimbs = ExactSum::kLimbs;
  std::vector<std::int64_t> mine;
  mine.reserve(sums.size() * kLimbs);
  for (ExactSum& sum : sums) mine.insert(mine.end(), sum.limbs().begin(), sum.limbs().end());
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(world.size()));
  CKPT_RETURN_IF_ERROR(
      world.Exchange(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all))));
  for (std::size_t s = 0; s < sums.size(); ++s) {
    const std::span limbs = sums[s].limbs();
    std::ranges::fill(limbs, 0);
    for (std::size_t i = s * kLimbs; i < all.size(); i += mine.size()) {
      for (std::size_t limb = 0; limb < kLimbs; ++limb) limbs[limb] += all[i + limb];
    }
  }
  return OkStatus();
}

}  // namespace ckpt::trainer
