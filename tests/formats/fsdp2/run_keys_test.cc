#include "formats/fsdp2/internal/run_keys.h"

#include <gmock/gmock.h>

namespace ckpt::fsdp2 {
namespace {

void ExpectParsed(std::string_view key, std::string_view optimizer, std::string_view owner,
                  std::string_view field) {
  const auto parsed = ParseOptimizerKey(key);
  ASSERT_TRUE(parsed.has_value()) << key;
  EXPECT_EQ(parsed->optimizer, optimizer) << key;
  EXPECT_EQ(parsed->owner, owner) << key;
  EXPECT_EQ(parsed->field, field) << key;
}

TEST(OptimizerKeyTest, StandsBehindAnyPrefixOfAnOptimizer) {
  ExpectParsed("optim.state.layers.0.w.exp_avg", "optim.", "layers.0.w", "exp_avg");
  ExpectParsed("optimizer.state.w.step", "optimizer.", "w", "step");
  ExpectParsed("app.optim.state.w.exp_avg_sq", "app.optim.", "w", "exp_avg_sq");
  ExpectParsed("state.w.exp_avg", "", "w", "exp_avg");
  ExpectParsed("optim.param_groups.0.lr", "optim.", "0", "lr");
  ExpectParsed("optim.param_groups.layers.0.w.lr", "optim.", "layers.0.w", "lr");
  // A module may be called so, too.
  ExpectParsed("optim.state.state.w.exp_avg", "optim.", "state.w", "exp_avg");
}

TEST(OptimizerKeyTest, IsNothingElse) {
  for (const char* key : {"model.state.w", "w", "", "optim.state.w", "optim.state..exp_avg",
                          "optim.state.w.", "myoptim.state.w.exp_avg", "state.hidden.weight",
                          "optim.state.0.exp_avg", "run.opt_param_scheduler.lr"}) {
    EXPECT_FALSE(ParseOptimizerKey(key).has_value()) << key;
  }
}

}  // namespace
}  // namespace ckpt::fsdp2
