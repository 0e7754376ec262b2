// Packing: which examples share a sequence.
#ifndef CKPT_TRAINER_DATA_INTERNAL_PACKING_H_
#define CKPT_TRAINER_DATA_INTERNAL_PACKING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ckpt::trainer {

// Groups of item numbers. A value.
class Packs {
 public:
  Packs(std::vector<std::uint32_t> members, std::vector<std::uint32_t> begins)
      : members_(std::move(members)), begins_(std::move(begins)) {}

  [[nodiscard]] std::size_t size() const { return begins_.size() - 1; }
  // The members in ascending order. REQUIRES: pack < size().
  [[nodiscard]] std::span<const std::uint32_t> operator[](std::size_t pack) const {
    return std::span(members_).subspan(begins_[pack], begins_[pack + 1] - begins_[pack]);
  }

 private:
  std::vector<std::uint32_t> members_;  // pack after pack
  std::vector<std::uint32_t> begins_;   // where each pack begins in `members_`, then the end
};

// Puts every item into exactly one pack whose sizes add up to at most `capacity`: best fit, largest
// item first. Takes at most 11/9 of the packs of the best packing, plus one. Packs are numbered by
// their smallest member.
//
// REQUIRES: sizes are at most `capacity`, and there are fewer than 2³² - 1. Cost: O(n log n); 16
// bytes per item meanwhile, 8 afterwards.
[[nodiscard]] Packs PackBestFit(std::span<const std::uint32_t> sizes, std::uint32_t capacity);

// Puts every item into its own pack.
[[nodiscard]] Packs PackAlone(std::size_t num_items);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_INTERNAL_PACKING_H_
