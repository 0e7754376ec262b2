#include "trainer/model/internal/rope_table.h"

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/device_values.h"
#include "tests/testing/matchers.h"
#include "trainer/device/cpu/host_device.h"

namespace ckpt::testing {
namespace {

using ::testing::Pointwise;
using trainer::RopeConfig;
using trainer::RopeScaling;

// Reference values: transformers 5.23.0, ROPE_INIT_FUNCTIONS (modeling_rope_utils.py), torch
// 2.15.0.
struct FrequencyCase {
  std::string name;
  RopeConfig rope;
  std::int64_t dim = 0;
  std::vector<double> frequencies;
};
void PrintTo(const FrequencyCase& c, std::ostream* os) { *os << c.name; }

class RopeFrequenciesTest : public ::testing::TestWithParam<FrequencyCase> {};

TEST_P(RopeFrequenciesTest, EqualTransformers) {
  const auto& [name, rope, dim, want] = GetParam();
  const std::vector<float> single = trainer::RopeFrequencies<float>(rope, dim);
  const std::vector<double> precise = trainer::RopeFrequencies<double>(rope, dim);
  ASSERT_EQ(single.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(single[i], want[i], 2e-7 * want[i]);
    EXPECT_NEAR(precise[i], want[i], 1e-6 * want[i]);  // want was computed in float32
  }
}

INSTANTIATE_TEST_SUITE_P(
    Scalings, RopeFrequenciesTest,
    ::testing::Values(
        FrequencyCase{"None", {}, 8, {1.0, 0.100000001, 0.00999999978, 0.00100000005}},
        FrequencyCase{"Linear",
                      {.scaling = RopeScaling::kLinear, .factor = 4},
                      8,
                      {0.25, 0.0250000004, 0.00249999994, 0.000250000012}},
        FrequencyCase{"Llama3",
                      {.base = 500000,
                       .scaling = RopeScaling::kLlama3,
                       .factor = 8,
                       .original_max_positions = 8192},
                      16,
                      {1.0, 0.193922758, 0.0376060307, 0.00729266508, 0.000524846022,
                       3.42810235e-05, 6.64786967e-06, 1.28917316e-06}},
        FrequencyCase{"Yarn",
                      {.scaling = RopeScaling::kYarn, .factor = 40, .original_max_positions = 4096},
                      16,
                      {1.0, 0.316227764, 0.100000001, 0.0239147246, 0.00512499968, 0.000849862176,
                       2.49999994e-05, 7.90569447e-06}},
        FrequencyCase{"YarnNotTruncated",
                      {.base = 150000,
                       .scaling = RopeScaling::kYarn,
                       .factor = 32,
                       .original_max_positions = 4096,
                       .truncate = false},
                      16,
                      {1.0, 0.225418001, 0.0508132726, 0.00679495931, 0.000456483918, 1.8188337e-05,
                       4.09997847e-06, 9.24208962e-07}}),
    [](const auto& test) { return test.param.name; });

TEST(RopeTableTest, HoldsCosinesAndSinesOfEveryPosition) {
  const auto device = trainer::MakeHostDevice({});
  const auto queue = device->MakeQueue("compute");
  trainer::RopeTable table({.attention_factor = 1.5}, 4);
  for (const std::int64_t seq : {3, 7, 2}) {  // grows, and shrinks
    ASSERT_THAT(table.Prepare(*device, *queue, DType::kFloat64, seq), IsOk());
    std::vector<double> cosines;
    std::vector<double> sines;
    for (std::int64_t position = 0; position < seq; ++position) {
      for (const double frequency : {1.0, 0.01}) {
        cosines.push_back(1.5 * std::cos(static_cast<double>(position) * frequency));
        sines.push_back(1.5 * std::sin(static_cast<double>(position) * frequency));
      }
    }
    EXPECT_THAT(ReadValues(*device, *queue, table.cosine()),
                Pointwise(::testing::DoubleEq(), cosines));
    EXPECT_THAT(ReadValues(*device, *queue, table.sine()), Pointwise(::testing::DoubleEq(), sines));
  }
}

}  // namespace
}  // namespace ckpt::testing
