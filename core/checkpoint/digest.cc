#include "core/checkpoint/digest.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/checkpoint/read.h"

namespace ckpt {

Result<std::string> DigestTensor(const CheckpointSource& source, const GlobalTensor& tensor,
                                 HashAlgorithm algorithm, std::uint64_t budget_bytes) {
  return DigestChunks(source, tensor, WholeBox(tensor.shape), 0, algorithm, budget_bytes);
}

Result<std::string> DigestChunks(const CheckpointSource& source, const GlobalTensor& tensor,
                                 const Box& box, std::size_t copy, HashAlgorithm algorithm,
                                 std::uint64_t budget_bytes) {
  Hasher hasher(algorithm);
  CKPT_RETURN_IF_ERROR(StreamChunks(source, tensor, box, copy, budget_bytes, [&](ByteSpan block) {
    hasher.Update(block);
    return OkStatus();
  }));
  return hasher.Finish();
}

std::string CombineDigests(std::vector<TensorDigest> digests, HashAlgorithm algorithm) {
  std::sort(digests.begin(), digests.end(),
            [](const TensorDigest& a, const TensorDigest& b) { return a.key < b.key; });
  Hasher hasher(algorithm);
  for (const TensorDigest& digest : digests) {
    std::string line = digest.key;
    line += '\0';
    line += DTypeName(digest.dtype);
    line += '\0';
    line += fmt::format("{}", fmt::join(digest.shape, ","));
    line += '\0';
    line += digest.hex;
    line += '\n';
    hasher.Update(AsBytes(line));
  }
  return hasher.Finish();
}

}  // namespace ckpt
