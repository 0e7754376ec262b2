// Distinct texts as numbers.
#ifndef CKPT_FORMATS_DCP_INTERNAL_TEXT_POOL_H_
#define CKPT_FORMATS_DCP_INTERNAL_TEXT_POOL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ckpt::dcp {

// Numbers each distinct text once.
class TextPool {
 public:
  std::uint32_t Intern(std::string_view text);
  [[nodiscard]] const std::string& Get(std::uint32_t id) const { return *texts_[id]; }
  [[nodiscard]] std::size_t size() const { return texts_.size(); }

 private:
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<const std::string*> texts_;  // keys of ids_
};

// Guesses the numbers of texts that come again and again, so that they are rarely looked up.
class TextCache {
 public:
  // The number of `text` in `pool`, always the same pool. `hint` is any number that is often the
  // same for the same text.
  std::uint32_t Intern(std::uint64_t hint, std::string_view text, TextPool& pool) {
    std::uint32_t& guess = guesses_[hint % guesses_.size()];
    if (guess >= pool.size() || pool.Get(guess) != text) guess = pool.Intern(text);
    return guess;
  }

 private:
  std::array<std::uint32_t, 1U << 12> guesses_{};
};

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_INTERNAL_TEXT_POOL_H_
