// ObjectCache: what small objects say, by the bytes of their items.
#ifndef CKPT_FORMATS_DCP_OBJECT_CACHE_H_
#define CKPT_FORMATS_DCP_OBJECT_CACHE_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>

#include "core/base/bytes.h"
#include "core/base/mutex.h"
#include "core/checkpoint/index.h"
#include "core/checkpoint/source.h"

namespace ckpt::dcp {

// A stored item, with all that decides what it says.
struct ItemBytes {
  EncodingId encoding = 0;
  Bytes bytes;

  friend auto operator<=>(const ItemBytes&, const ItemBytes&) = default;
};

// A run may store each setting of its optimizer once for every parameter: tens of thousands of
// objects, most of which are equal. To compare the bytes of an item with those that were parsed
// before takes a fifth of the time that it takes to parse it.
//
// Thread-safe.
class ObjectCache {
 public:
  // An item that is larger is not worth the memory.
  static constexpr std::uint64_t kMaxItemBytes = 4096;

  // Nothing if no object of these bytes was added.
  [[nodiscard]] std::optional<RenderedObject> Find(const ItemBytes& item) const
      CKPT_EXCLUDES(mutex_);
  // Keeps the object, unless it has warnings, which name its key.
  void Add(ItemBytes item, const RenderedObject& object) CKPT_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<ItemBytes, RenderedObject> objects_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_OBJECT_CACHE_H_
