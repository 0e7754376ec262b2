#include "core/checkpoint/view_source.h"

#include "core/base/check.h"

namespace ckpt {

std::size_t ViewSource::PositionOf(const GlobalTensor& tensor, const Chunk& chunk) const {
  const auto position = static_cast<std::size_t>(&chunk - index_.chunks(tensor).data());
  CKPT_CHECK(position < tensor.num_chunks);
  return position;
}

Result<StoredArray> ViewSource::Locate(const GlobalTensor& tensor, const Chunk& chunk) const {
  const GlobalTensor* const stored = below().index().FindTensor(tensor.key);
  CKPT_CHECK(stored != nullptr);
  return below().Locate(*stored, below().index().chunks(*stored)[PositionOf(tensor, chunk)]);
}

Result<RenderedObject> ViewSource::ReadObject(const ObjectEntry& object) const {
  CKPT_CHECK(below().index().FindObject(object.key) != nullptr);
  return below().ReadObject(object);  // one of its copies, maybe
}

Result<std::optional<PickledObject>> ViewSource::ReadPickled(const ObjectEntry& object) const {
  const ObjectEntry* const stored = below().index().FindObject(object.key);
  if (stored == nullptr) return std::optional<PickledObject>();
  return below().ReadPickled(*stored);
}

std::uint64_t ViewSource::HeldBytes(const ObjectEntry& object) const {
  const ObjectEntry* const stored = below().index().FindObject(object.key);
  return stored == nullptr ? 0 : below().HeldBytes(*stored);
}

}  // namespace ckpt
