// Digests of logical tensors: equal values give equal digests, whatever the container and chunks.
#ifndef CKPT_CORE_CHECKPOINT_DIGEST_H_
#define CKPT_CORE_CHECKPOINT_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/tensor/box.h"

namespace ckpt {

// One tensor's line of a checkpoint digest.
struct TensorDigest {
  std::string key;
  DType dtype = DType::kFloat32;
  Dims shape;
  std::string hex;
};

// Hash of the tensor's bytes in C order, little endian, without a header. An empty tensor gives the
// hash of no bytes. Errors: those of StreamTensor.
Result<std::string> DigestTensor(const CheckpointSource& source, const GlobalTensor& tensor,
                                 HashAlgorithm algorithm, std::uint64_t budget_bytes);

// The same of a box that whole chunks make up, and of copy number `copy` of these.
Result<std::string> DigestChunks(const CheckpointSource& source, const GlobalTensor& tensor,
                                 const Box& box, std::size_t copy, HashAlgorithm algorithm,
                                 std::uint64_t budget_bytes);

// One value for all tensors: the hash of the lines `key NUL dtype NUL d0,d1,… NUL hex LF`, sorted
// by the bytes of the key.
std::string CombineDigests(std::vector<TensorDigest> digests, HashAlgorithm algorithm);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_DIGEST_H_
