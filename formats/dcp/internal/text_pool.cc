#include "formats/dcp/internal/text_pool.h"

namespace ckpt::dcp {

std::uint32_t TextPool::Intern(std::string_view text) {
  const auto [it, added] =
      ids_.try_emplace(std::string(text), static_cast<std::uint32_t>(texts_.size()));
  if (added) texts_.push_back(&it->first);
  return it->second;
}

}  // namespace ckpt::dcp
