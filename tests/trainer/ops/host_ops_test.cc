#include <gtest/gtest.h>

#include "tests/conformance/attention_ops_suite.h"
#include "tests/conformance/matrix_ops_suite.h"
#include "tests/conformance/ops_suite.h"
#include "tests/trainer/ops/host_backends.h"

namespace ckpt::trainer {

INSTANTIATE_TEST_SUITE_P(Host, MatrixOpsTest, ::testing::ValuesIn(HostBackends()), BackendName);
INSTANTIATE_TEST_SUITE_P(Host, AttentionOpsTest, ::testing::ValuesIn(HostBackends()), BackendName);
INSTANTIATE_TEST_SUITE_P(Host, OpsSuite, ::testing::ValuesIn(HostBackends()), BackendName);

}  // namespace ckpt::trainer
