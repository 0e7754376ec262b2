// Compares what a source holds with the account of a golden checkpoint.
#ifndef CKPT_TESTS_TESTING_GOLDEN_TENSORS_H_
#define CKPT_TESTS_TESTING_GOLDEN_TENSORS_H_

#include <gmock/gmock.h>

#include "core/checkpoint/digest.h"
#include "core/checkpoint/source.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"

namespace ckpt::testing {

// What to make of a tensor whose account gives no digest.
enum class WithoutDigest {
  kFails,
  kMustBeReadable,  // Megatron's buckets: their gaps are uninitialised
};

// The same keys, and for each the shape, the dtype and the SHA-256 of the values.
inline void ExpectGoldenTensors(const CheckpointSource& source, const GoldenCase& golden,
                                WithoutDigest without_digest = WithoutDigest::kFails) {
  constexpr std::uint64_t kBudget = 1 << 20;
  const CheckpointIndex& index = source.index();
  EXPECT_EQ(index.tensors().size(), golden.tensors.size());
  for (const auto& [key, expected] : golden.tensors) {
    SCOPED_TRACE(key);
    const GlobalTensor* tensor = index.FindTensor(key);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(DTypeName(tensor->dtype), expected.dtype);
    EXPECT_EQ(tensor->shape, expected.shape);
    const auto digest = DigestTensor(source, *tensor, HashAlgorithm::kSha256, kBudget);
    ASSERT_THAT(digest, IsOk());
    if (expected.sha256.empty() && without_digest == WithoutDigest::kMustBeReadable) continue;
    EXPECT_EQ(*digest, expected.sha256);
  }
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_GOLDEN_TENSORS_H_
