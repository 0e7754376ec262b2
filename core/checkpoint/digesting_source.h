// DigestingSource: tensors of a checkpoint are digested while someone reads them.
#ifndef CKPT_CORE_CHECKPOINT_DIGESTING_SOURCE_H_
#define CKPT_CORE_CHECKPOINT_DIGESTING_SOURCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/base/hash.h"
#include "core/checkpoint/forwarding_source.h"

namespace ckpt {

// Shows the checkpoint below as it is. A digest needs a tensor's bytes from the first to the last:
// if they are read in this order, by however many readers, whatever these want of them, nobody has
// to read them again for it. A part that is read a second time does not count again.
class DigestingSource final : public ForwardingSource {
 public:
  // `tensors`: positions in the index. `below` must outlive this.
  DigestingSource(const CheckpointSource& below, std::span<const std::uint32_t> tensors,
                  HashAlgorithm algorithm);

  // As DigestTensor computes it (hex). Nothing if the tensor was not read in order, or not all of
  // it; if its bytes do not lie in one chunk as they are digested; or if it is none of `tensors`.
  // REQUIRES: nobody reads.
  [[nodiscard]] std::optional<std::string> Digest(std::uint32_t tensor) const;

  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override;

 private:
  class Stream;
  class File;

  std::map<std::uint32_t, std::shared_ptr<Stream>> streams_;
};

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_DIGESTING_SOURCE_H_
