#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/attention_ops_suite.h"
#include "tests/conformance/matrix_ops_suite.h"
#include "tests/conformance/ops_suite.h"
#include "tests/conformance/projection_ops_suite.h"
#include "tests/conformance/rope_ops_suite.h"
#include "tests/trainer/ops/host_backends.h"

namespace ckpt::trainer {

// Lines of these operands lie a multiple of 4096 bytes apart. Products read copies of them,
// by tiles.
TEST_P(MatrixOpsTest, GemmOfOperandsWhoseLinesDisplaceEachOtherInTheCaches) {
  for (const auto& [form, size] : {std::pair{GemmForm{.transpose_a = true}, Size{1024, 66, 530}},
                                   {GemmForm{.transpose_a = true}, Size{1024, 1024, 9}},
                                   {GemmForm{}, Size{66, 2048, 20}},
                                   {GemmForm{.transpose_b = true}, Size{66, 70, 1024}}}) {
    SCOPED_TRACE(::testing::Message() << size.m << "x" << size.n << "x" << size.k);
    const Array a = RandomA(DType::kFloat32, form, size);
    const Array b = RandomB(DType::kFloat32, form, size);
    const Array d = Make(DType::kFloat32, {size.m, size.n});
    ops().Gemm(queue(), form, a, b, d);
    EXPECT_TRUE(
        AllNear(d.Get(), Product(form, size, a.Get(), b.Get()), ToleranceOf(DType::kFloat32)));
  }
}

// Threads share the key/value heads that remain when all threads have had equally many.
TEST_P(AttentionOpsTest, AttentionIsTheSameWithAnyNumberOfThreads) {
  for (const AttentionShape& shape : {Shape(1, 70, 2, 1, 12, 16, 0), Shape(1, 130, 9, 3, 8, 8, 0),
                                      Shape(2, 65, 8, 2, 8, 12, 40), Shape(7, 33, 4, 4, 8, 8, 0)}) {
    for (const DType dtype : kComputeDTypes) {
      SCOPED_TRACE(::testing::Message() << shape.num_kv_heads << " key/value heads of "
                                        << shape.batch << " sequences, " << DTypeName(dtype));
      const Operands x = MakeOperands(dtype, shape);
      Run(shape, x);
      const std::vector<double> want[] = {x.o.Get(), x.lse.Get(), x.dq.Get(), x.dk.Get(),
                                          x.dv.Get()};
      for (const int threads : {1, 2, 3, 5}) {
        const std::unique_ptr<Ops> other = GetParam().with_threads(threads);
        other->Attention(queue(), shape, x.q, x.k, x.v, x.o, x.lse);
        other->AttentionBackward(queue(), shape, x.d_o, x.q, x.k, x.v, x.o, x.lse, x.dq, x.dk,
                                 x.dv);
        EXPECT_THAT(want, ::testing::ElementsAre(x.o.Get(), x.lse.Get(), x.dq.Get(), x.dk.Get(),
                                                 x.dv.Get()))
            << threads << " threads";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Host, MatrixOpsTest, ::testing::ValuesIn(HostBackends()), BackendName);
INSTANTIATE_TEST_SUITE_P(Host, AttentionOpsTest, ::testing::ValuesIn(HostBackends()), BackendName);
INSTANTIATE_TEST_SUITE_P(Host, RopeOpsTest, ::testing::ValuesIn(HostBackends()), BackendName);
INSTANTIATE_TEST_SUITE_P(Host, ProjectionOpsTest, ::testing::ValuesIn(HostBackends()), BackendName);
INSTANTIATE_TEST_SUITE_P(Host, OpsSuite, ::testing::ValuesIn(HostBackends()), BackendName);

}  // namespace ckpt::trainer
