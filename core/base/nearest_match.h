// Guesses which word a mistyped word was meant to be.
#ifndef CKPT_CORE_BASE_NEAREST_MATCH_H_
#define CKPT_CORE_BASE_NEAREST_MATCH_H_

#include <span>
#include <string>
#include <string_view>

namespace ckpt {

// The candidate with the fewest edits (insert, delete, replace, swap neighbours) from `word`. Empty
// if none is within a third of the word's length. On a tie the earlier one wins.
[[nodiscard]] std::string NearestMatch(std::string_view word,
                                       std::span<const std::string> candidates);

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_NEAREST_MATCH_H_
