#include <utility>

#include <gtest/gtest.h>

#include "tests/conformance/attention_ops_suite.h"
#include "tests/conformance/matrix_ops_suite.h"
#include "tests/conformance/ops_suite.h"
#include "tests/conformance/projection_ops_suite.h"
#include "tests/conformance/rope_ops_suite.h"
#include "tests/trainer/ops/host_backends.h"

namespace ckpt::trainer {

// Lines of these operands lie a multiple of 4096 bytes apart. Products read copies of them, by tiles.
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

INSTANTIATE_TEST_SUITE_P(Host, MatrixOpsTest, ::testing::ValuesIn(HostBackends()), BackendName);
INSTANTIATE_TEST_SUITE_P(Host, AttentionOpsTest, ::testing::ValuesIn(HostBackends()), BackendName);
INSTANTIATE_TEST_SUITE_P(Host, RopeOpsTest, ::testing::ValuesIn(HostBackends()), BackendName);
INSTANTIATE_TEST_SUITE_P(Host, ProjectionOpsTest, ::testing::ValuesIn(HostBackends()), BackendName);
INSTANTIATE_TEST_SUITE_P(Host, OpsSuite, ::testing::ValuesIn(HostBackends()), BackendName);

}  // namespace ckpt::trainer
