#include "trainer/optim/schedule.h"

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::trainer {
namespace {

using testing::FailsWith;
using testing::IsOk;

ScheduleConfig Schedule(DecayStyle style, WsdDecayStyle wsd_style, std::int64_t warmup_steps) {
  return {.style = style,
          .max_lr = 3e-4,
          .min_lr = 3e-5,
          .init_lr = 1e-6,
          .warmup_steps = warmup_steps,
          .decay_steps = 20,
          .wsd_style = wsd_style,
          .wsd_decay_steps = 8};
}

struct Curve {
  const char* name;
  DecayStyle style;
  WsdDecayStyle wsd_style;
  std::int64_t warmup_steps;
  std::vector<double> rates;  // of updates 1, 2, …
};
void PrintTo(const Curve& curve, std::ostream* os) { *os << curve.name; }

// Recorded from megatron.core 0.16.1: OptimizerParamScheduler(init_lr=1e-6, max_lr=3e-4,
// min_lr=3e-5, lr_decay_steps=20, wsd_decay_steps=8, …), the rate of its group after 0, 1, 2, …
// calls of step(1).
const Curve kCurves[] = {
    {"Constant",
     DecayStyle::kConstant,
     WsdDecayStyle::kExponential,
     4,
     {1e-06,
      7.574999999999998e-05,
      0.00015049999999999997,
      0.00022524999999999995,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003}},
    {"Linear",
     DecayStyle::kLinear,
     WsdDecayStyle::kExponential,
     4,
     {1e-06,
      7.574999999999998e-05,
      0.00015049999999999997,
      0.00022524999999999995,
      0.0003,
      0.00028312499999999996,
      0.00026625,
      0.000249375,
      0.00023249999999999996,
      0.00021562499999999997,
      0.00019874999999999995,
      0.00018187499999999996,
      0.00016499999999999997,
      0.00014812499999999998,
      0.00013125,
      0.00011437499999999997,
      9.749999999999998e-05,
      8.0625e-05,
      6.374999999999999e-05,
      4.6875e-05,
      3e-05,
      3e-05,
      3e-05,
      3e-05,
      3e-05}},
    {"Cosine",
     DecayStyle::kCosine,
     WsdDecayStyle::kExponential,
     4,
     {1e-06,
      7.574999999999998e-05,
      0.00015049999999999997,
      0.00022524999999999995,
      0.0003,
      0.0002974060128544361,
      0.0002897237368890237,
      0.0002772483976608436,
      0.0002604594154601839,
      0.00024000198145764624,
      0.00021666226336928708,
      0.0001913371934721773,
      0.00016499999999999997,
      0.00013866280652782267,
      0.00011333773663071286,
      8.999801854235373e-05,
      6.954058453981609e-05,
      5.275160233915637e-05,
      4.027626311097629e-05,
      3.259398714556389e-05,
      3e-05,
      3e-05,
      3e-05,
      3e-05,
      3e-05}},
    {"CosineWithoutWarmup",
     DecayStyle::kCosine,
     WsdDecayStyle::kExponential,
     0,
     {0.0003,
      0.0002983379259803436,
      0.0002933926296998457,
      0.00028528588076542964,
      0.00027421729424061787,
      0.0002604594154601839,
      0.00024435100905948387,
      0.00022628871746483876,
      0.00020671729424061788,
      0.00018611865278043115,
      0.00016499999999999997,
      0.0001438813472195688,
      0.0001232827057593821,
      0.00010371128253516117,
      8.564899094051613e-05,
      6.954058453981609e-05,
      5.5782705759382104e-05,
      4.471411923457034e-05,
      3.660737030015427e-05,
      3.1662074019656414e-05,
      3e-05,
      3e-05,
      3e-05,
      3e-05,
      3e-05}},
    {"WsdExponential",
     DecayStyle::kWsd,
     WsdDecayStyle::kExponential,
     4,
     {1e-06,
      7.574999999999998e-05,
      0.00015049999999999997,
      0.00022524999999999995,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.00025518218333052243,
      0.0002140840642370058,
      0.00017639692286014396,
      0.00014183766184073566,
      0.00011014667975577258,
      8.108592105073466e-05,
      5.443708781961957e-05,
      3e-05,
      3e-05,
      3e-05,
      3e-05,
      3e-05}},
    {"WsdLinear",
     DecayStyle::kWsd,
     WsdDecayStyle::kLinear,
     4,
     {1e-06,
      7.574999999999998e-05,
      0.00015049999999999997,
      0.00022524999999999995,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.00026625,
      0.00023249999999999996,
      0.00019874999999999995,
      0.00016499999999999997,
      0.00013125,
      9.749999999999998e-05,
      6.374999999999999e-05,
      3e-05,
      3e-05,
      3e-05,
      3e-05,
      3e-05}},
    {"WsdCosine",
     DecayStyle::kWsd,
     WsdDecayStyle::kCosine,
     4,
     {1e-06,
      7.574999999999998e-05,
      0.00015049999999999997,
      0.00022524999999999995,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0002897237368890237,
      0.0002604594154601839,
      0.00021666226336928708,
      0.00016499999999999997,
      0.00011333773663071286,
      6.954058453981609e-05,
      4.027626311097629e-05,
      3e-05,
      3e-05,
      3e-05,
      3e-05,
      3e-05}},
    {"WsdMinusSqrt",
     DecayStyle::kWsd,
     WsdDecayStyle::kMinusSqrt,
     4,
     {1e-06,
      7.574999999999998e-05,
      0.00015049999999999997,
      0.00022524999999999995,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.0003,
      0.00020454058453981606,
      0.00016499999999999997,
      0.00013465944236213547,
      0.00010908116907963214,
      8.654625793863437e-05,
      6.617314097820157e-05,
      4.743812639275896e-05,
      3e-05,
      3e-05,
      3e-05,
      3e-05,
      3e-05}},
};

class ScheduleCurveTest : public ::testing::TestWithParam<Curve> {};

TEST_P(ScheduleCurveTest, IsMegatrons) {
  const Curve& curve = GetParam();
  const ScheduleConfig schedule = Schedule(curve.style, curve.wsd_style, curve.warmup_steps);
  ASSERT_THAT(ValidateSchedule(schedule), IsOk());
  for (std::size_t i = 0; i < curve.rates.size(); ++i) {
    EXPECT_DOUBLE_EQ(LearningRate(schedule, static_cast<std::int64_t>(i) + 1), curve.rates[i])
        << "update " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(, ScheduleCurveTest, ::testing::ValuesIn(kCurves),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ScheduleTest, NamesAreMegatrons) {
  EXPECT_EQ(DecayStyleName(DecayStyle::kConstant), "constant");
  EXPECT_EQ(DecayStyleName(DecayStyle::kLinear), "linear");
  EXPECT_EQ(DecayStyleName(DecayStyle::kCosine), "cosine");
  EXPECT_EQ(DecayStyleName(DecayStyle::kWsd), "WSD");
}

TEST(ScheduleTest, AConstantRateNeedsNoLengthOfDecay) {
  EXPECT_THAT(ValidateSchedule({}), IsOk());
  EXPECT_DOUBLE_EQ(LearningRate({}, 1), 1e-3);
}

TEST(ScheduleTest, ReportsEveryViolation) {
  ScheduleConfig schedule = Schedule(DecayStyle::kWsd, WsdDecayStyle::kLinear, -1);
  schedule.max_lr = 1e-6;
  schedule.init_lr = 1e-5;
  schedule.decay_steps = 0;
  const Status status = ValidateSchedule(schedule);
  EXPECT_THAT(status, FailsWith(ErrorKind::kUsage));
  EXPECT_EQ(status.problems().size(), 5U) << status.ToString();
}

TEST(ScheduleTest, RefusesRatesThatAreNotNumbers) {
  for (double ScheduleConfig::*rate :
       {&ScheduleConfig::max_lr, &ScheduleConfig::min_lr, &ScheduleConfig::init_lr}) {
    ScheduleConfig schedule;
    schedule.*rate = std::nan("");
    EXPECT_THAT(ValidateSchedule(schedule), FailsWith(ErrorKind::kUsage));
  }
}

}  // namespace
}  // namespace ckpt::trainer
