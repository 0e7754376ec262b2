// Packing: which examples share a sequence.
#ifndef CKPT_TRAINER_DATA_PACKING_H_
#define CKPT_TRAINER_DATA_PACKING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ckpt::trainer {

// Groups of examples, by number. A value.
class Packs {
 public:
  Packs(std::vector<std::uint32_t> members, std::vector<std::uint32_t> begins)
      : members_(std::move(members)), begins_(std::move(begins)) {}

  [[nodiscard]] std::size_t size() const { return begins_.size() - 1; }
  // In ascending order. REQUIRES: pack < size().
  [[nodiscard]] std::span<const std::uint32_t> operator[](std::size_t pack) const {
    return std::span(members_).subspan(begins_[pack], begins_[pack + 1] - begins_[pack]);
  }

 private:
  std::vector<std::uint32_t> members_;  // pack after pack
  std::vector<std::uint32_t> begins_;   // of each pack in `members_`, and their end
};

// Every item in exactly one pack whose sizes add up to `capacity` at most: best fit, the largest first. Takes at most
// 11/9 of the packs that the best packing has, and one. Packs are numbered by their smallest member.
//
// REQUIRES: sizes are at most `capacity`, and fewer than 2³² - 1. Cost: O(n log n); 16 bytes an item meanwhile, 8 after.
[[nodiscard]] Packs PackBestFit(std::span<const std::uint32_t> sizes, std::uint32_t capacity);

// Every item on its own.
[[nodiscard]] Packs PackAlone(std::size_t num_items);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_PACKING_H_
