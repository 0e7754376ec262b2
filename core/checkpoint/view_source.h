// A checkpoint seen with changes: the base of sources that show another one.
#ifndef CKPT_CORE_CHECKPOINT_VIEW_SOURCE_H_
#define CKPT_CORE_CHECKPOINT_VIEW_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "core/checkpoint/forwarding_source.h"

namespace ckpt {

// Passes on what is as in the checkpoint below. A derived class makes the index, which begins with
// BeginCopy, and answers itself for the entries that it adds.
class ViewSource : public ForwardingSource {
 public:
  [[nodiscard]] const CheckpointIndex& index() const final { return index_; }

  // REQUIRES, beside what CheckpointSource asks: the tensor was copied by CopyTensor.
  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override;
  // Or that it was copied by CopyObjects.
  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override;
  // Nothing of objects that the checkpoint below does not have.
  Result<std::optional<PickledObject>> ReadPickled(const ObjectEntry& object) const override;
  [[nodiscard]] std::uint64_t HeldBytes(const ObjectEntry& object) const override;
  // What it adds is beside the object below.
  [[nodiscard]] bool is_one_object() const override { return false; }

 protected:
  explicit ViewSource(std::shared_ptr<const CheckpointSource> below)
      : ForwardingSource(*below), owned_(std::move(below)) {}

  void SetIndex(CheckpointIndex index) { index_ = std::move(index); }
  // The position of a chunk among its tensor's. REQUIRES: both are of the index.
  [[nodiscard]] std::size_t PositionOf(const GlobalTensor& tensor, const Chunk& chunk) const;

 private:
  const std::shared_ptr<const CheckpointSource> owned_;  // what is below
  CheckpointIndex index_;
};

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_VIEW_SOURCE_H_
