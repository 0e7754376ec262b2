#include "trainer/run/loop_settings.h"

#include <chrono>

#include <gmock/gmock.h>

#include "core/layout/value.h"
#include "tests/testing/matchers.h"

namespace ckpt::train {
namespace {

using std::chrono::milliseconds;

LoopSettings Read(const layout::Value& minutes, Status& problems) {
  const layout::Configuration given = {{"distributed_timeout_minutes", minutes}};
  trainer::SettingsReader reader(given);
  LoopSettings settings = ReadLoopSettings(reader);
  problems = reader.Finish();
  return settings;
}

TEST(LoopSettingsTest, ATimeoutMayBeAPartOfAMinute) {
  Status problems;
  EXPECT_EQ(Read(30, problems).timeout, std::chrono::minutes(30));
  EXPECT_EQ(Read(0.05, problems).timeout, milliseconds(3000));
  EXPECT_EQ(Read(1e-9, problems).timeout, milliseconds(1));  // 0 would be none
  EXPECT_EQ(Read(0, problems).timeout, milliseconds(0));
  EXPECT_EQ(Read({}, problems).timeout, std::chrono::minutes(10));
  EXPECT_THAT(problems, testing::IsOk());
}

TEST(LoopSettingsTest, RefusesATimeoutThatIsNone) {
  for (const layout::Value& minutes :
       {layout::Value(-1), layout::Value(1e300), layout::Value("ten")}) {
    Status problems;
    EXPECT_EQ(Read(minutes, problems).timeout, std::chrono::minutes(10));
    ASSERT_THAT(problems, testing::FailsWith(ErrorKind::kUsage));
    EXPECT_THAT(problems.ToString(), ::testing::HasSubstr("distributed_timeout_minutes"));
  }
}

}  // namespace
}  // namespace ckpt::train
