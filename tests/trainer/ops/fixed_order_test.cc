// What the fixed order adds to the promises of every Ops: bits that depend on nothing beside a row
// and a column.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops.h"
#include "trainer/ops/cpu/internal/fixed_order_gemm.h"
#include "trainer/ops/cpu/internal/gemm_kernels.h"

namespace ckpt::trainer {
namespace {

std::vector<float> Normal(std::int64_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(rng);
  return values;
}

template <typename T>
bool SameBits(const T* a, const T* b, std::int64_t count) {
  return std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(T)) == 0;
}

Tensor View(std::vector<float>& values, std::initializer_list<std::int64_t> dims) {
  return {values.data(), DType::kFloat32, dims};
}

// The chain that the header promises, one element at a time.
template <typename R>
R Chain(const ProductSize& size, const std::vector<R>& a, const std::vector<R>& b, std::int64_t i,
        std::int64_t j) {
  R sum = 0;
  for (std::int64_t p = 0; p < size.k; ++p) {
    sum = std::fma(a[static_cast<std::size_t>(i * size.k + p)],
                   b[static_cast<std::size_t>(p * size.n + j)], sum);
  }
  return sum;
}

template <typename R>
void ExpectChains() {
  const ProductSize size{45, 70, 600};  // more than one block deep, tails on both sides
  const std::vector<float> a32 = Normal(size.m * size.k, 1);
  const std::vector<float> b32 = Normal(size.k * size.n, 2);
  const std::vector<R> a(a32.begin(), a32.end());
  const std::vector<R> b(b32.begin(), b32.end());
  std::vector<R> want;
  for (std::int64_t i = 0; i < size.m; ++i) {
    for (std::int64_t j = 0; j < size.n; ++j) want.push_back(Chain(size, a, b, i, j));
  }
  for (const GemmKernels* kernels : {PlainGemmKernels(), Avx2GemmKernels(), Avx512GemmKernels()}) {
    if (kernels == nullptr) continue;
#if defined(__x86_64__)
    if (kernels == Avx2GemmKernels() &&
        (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")))
      continue;
    if (kernels == Avx512GemmKernels() && !__builtin_cpu_supports("avx512f")) continue;
#endif
    std::vector<R> c(want.size(), R{-1});
    FixedOrderGemm<R>(size, {a.data(), size.k, 1}, {b.data(), size.n, 1}, /*accumulate=*/false,
                      c.data(), size.n, *kernels);
    EXPECT_TRUE(SameBits(c.data(), want.data(), size.m * size.n)) << kernels->name;
  }
}

TEST(FixedOrderGemmTest, IsOneChainOfFusedMultiplyAddsOnEveryInstructionSet) {
  ExpectChains<float>();
  ExpectChains<double>();
}

TEST(FixedOrderGemmTest, GoesOnWithWhatItAccumulatesInto) {
  const ProductSize whole{9, 11, 300};
  const std::vector<float> a = Normal(whole.m * whole.k, 3);
  const std::vector<float> b = Normal(whole.k * whole.n, 4);
  std::vector<float> once(99);
  std::vector<float> twice(99);
  FixedOrderGemm<float>(whole, {a.data(), whole.k, 1}, {b.data(), whole.n, 1}, false, once.data(),
                        whole.n);
  FixedOrderGemm<float>({9, 11, 123}, {a.data(), whole.k, 1}, {b.data(), whole.n, 1}, false,
                        twice.data(), whole.n);
  FixedOrderGemm<float>({9, 11, 177}, {a.data() + 123, whole.k, 1},
                        {b.data() + 123 * whole.n, whole.n, 1}, true, twice.data(), whole.n);
  EXPECT_TRUE(SameBits(once.data(), twice.data(), 99));
}

class FixedOrderOpsTest : public ::testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Ops> ops_ = MakeHostOps({.threads = GetParam(), .fixed_order = true});
  std::unique_ptr<Device> device_ = MakeHostDevice({});
  std::unique_ptr<Queue> queue_ = device_->MakeQueue("test");
};

TEST_P(FixedOrderOpsTest, ARowOfAProductDoesNotDependOnTheRowsBesideIt) {
  constexpr std::int64_t kRows = 700;
  constexpr std::int64_t kColumns = 90;
  constexpr std::int64_t kDepth = 310;
  std::vector<float> a = Normal(kRows * kDepth, 5);
  std::vector<float> b = Normal(kDepth * kColumns, 6);
  std::vector<float> all(kRows * kColumns);
  ops_->Gemm(*queue_, {}, View(a, {kRows, kDepth}), View(b, {kDepth, kColumns}),
             View(all, {kRows, kColumns}));
  for (const auto& [begin, count] : {std::pair{0, 1}, {13, 2}, {300, 345}, {699, 1}}) {
    std::vector<float> some(static_cast<std::size_t>(count) * kColumns);
    ops_->Gemm(*queue_, {}, View(a, {kRows, kDepth}).Rows(begin, count),
               View(b, {kDepth, kColumns}), View(some, {count, kColumns}));
    EXPECT_TRUE(SameBits(some.data(), all.data() + begin * kColumns, count * kColumns)) << begin;
  }
}

TEST_P(FixedOrderOpsTest, ASequencesAttentionDoesNotDependOnTheSequencesBesideIt) {
  constexpr std::int64_t kTokens = 3 * 150;
  const AttentionShape all_shape{.batch = 3,
                                 .seq = 150,
                                 .num_heads = 4,
                                 .num_kv_heads = 2,
                                 .qk_dim = 24,
                                 .v_dim = 16,
                                 .scale = 0.2,
                                 .window = 140};
  AttentionShape one_shape = all_shape;
  one_shape.batch = 1;
  std::vector<float> q = Normal(kTokens * 4 * 24, 7);
  std::vector<float> k = Normal(kTokens * 2 * 24, 8);
  std::vector<float> v = Normal(kTokens * 2 * 16, 9);
  std::vector<float> d_o = Normal(kTokens * 4 * 16, 10);
  struct Results {
    std::vector<float> o, lse, dq, dk, dv;
  };
  const auto run = [&](const AttentionShape& shape, std::int64_t first) {
    const std::int64_t tokens = shape.batch * shape.seq;
    const auto sized = [&](std::int64_t per_token) {
      return std::vector<float>(static_cast<std::size_t>(tokens * per_token));
    };
    Results r{sized(64), sized(4), sized(96), sized(48), sized(32)};
    const Tensor query = View(q, {kTokens, 4, 24}).Rows(first, tokens);
    const Tensor key = View(k, {kTokens, 2, 24}).Rows(first, tokens);
    const Tensor value = View(v, {kTokens, 2, 16}).Rows(first, tokens);
    const Tensor o = View(r.o, {tokens, 4, 16});
    const Tensor lse = View(r.lse, {shape.batch, 4, shape.seq});
    ops_->Attention(*queue_, shape, query, key, value, o, lse);
    ops_->AttentionBackward(*queue_, shape, View(d_o, {kTokens, 4, 16}).Rows(first, tokens), query,
                            key, value, o, lse, View(r.dq, {tokens, 4, 24}),
                            View(r.dk, {tokens, 2, 24}), View(r.dv, {tokens, 2, 16}));
    return r;
  };
  const Results all = run(all_shape, 0);
  for (std::int64_t sequence = 0; sequence < 3; ++sequence) {
    const Results one = run(one_shape, sequence * 150);
    EXPECT_TRUE(SameBits(one.o.data(), all.o.data() + sequence * 150 * 64, 150 * 64));
    EXPECT_TRUE(SameBits(one.lse.data(), all.lse.data() + sequence * 150 * 4, 150 * 4));
    EXPECT_TRUE(SameBits(one.dq.data(), all.dq.data() + sequence * 150 * 96, 150 * 96));
    EXPECT_TRUE(SameBits(one.dk.data(), all.dk.data() + sequence * 150 * 48, 150 * 48));
    EXPECT_TRUE(SameBits(one.dv.data(), all.dv.data() + sequence * 150 * 32, 150 * 32));
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, FixedOrderOpsTest, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace ckpt::trainer
