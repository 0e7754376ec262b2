#include "formats/dcp/object_cache.h"

#include <cstddef>
#include <utility>

namespace ckpt::dcp {
namespace {

// A run has a few groups of parameters with a dozen settings each. A checkpoint with more different
// objects than this gains nothing from a cache.
constexpr std::size_t kMaxObjects = 1024;

}  // namespace

std::optional<RenderedObject> ObjectCache::Find(const ItemBytes& item) const {
  const MutexLock lock(mutex_);
  const auto found = objects_.find(item);
  return found == objects_.end() ? std::nullopt : std::optional(found->second);
}

void ObjectCache::Add(ItemBytes item, const RenderedObject& object) {
  if (!object.warnings.empty()) return;
  const MutexLock lock(mutex_);
  if (objects_.size() < kMaxObjects) objects_.emplace(std::move(item), object);
}

}  // namespace ckpt::dcp
