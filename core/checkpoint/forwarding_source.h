// Base for sources that show another one and change some of its answers.
#ifndef CKPT_CORE_CHECKPOINT_FORWARDING_SOURCE_H_
#define CKPT_CORE_CHECKPOINT_FORWARDING_SOURCE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/checkpoint/source.h"

namespace ckpt {

// Forwards every call to the source below, which must outlive this.
class ForwardingSource : public CheckpointSource {
 public:
  [[nodiscard]] const CheckpointIndex& index() const override { return below_.index(); }
  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override {
    return below_.Locate(tensor, chunk);
  }
  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override {
    return below_.ReadObject(object);
  }
  Result<std::optional<PickledObject>> ReadPickled(const ObjectEntry& object) const override {
    return below_.ReadPickled(object);
  }
  [[nodiscard]] std::uint64_t HeldBytes(const ObjectEntry& object) const override {
    return below_.HeldBytes(object);
  }
  [[nodiscard]] bool is_one_object() const override { return below_.is_one_object(); }
  [[nodiscard]] EntryPaths Paths() const override { return below_.Paths(); }
  [[nodiscard]] std::vector<ObjectEntry> Attributes() const override { return below_.Attributes(); }
  [[nodiscard]] Status VerifyRest() const override { return below_.VerifyRest(); }
  Result<std::uint64_t> FileSize(FileId file) const override { return below_.FileSize(file); }
  [[nodiscard]] Protection protection() const override { return below_.protection(); }
  [[nodiscard]] bool HasChecksum(const Chunk& chunk) const override {
    return below_.HasChecksum(chunk);
  }
  [[nodiscard]] bool HasChecksum(const ObjectEntry& object) const override {
    return below_.HasChecksum(object);
  }

 protected:
  explicit ForwardingSource(const CheckpointSource& below) : below_(below) {}

  [[nodiscard]] const CheckpointSource& below() const { return below_; }

 private:
  const CheckpointSource& below_;
};

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_FORWARDING_SOURCE_H_
