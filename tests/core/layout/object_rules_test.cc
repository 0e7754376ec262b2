// Objects of a naming that are no tensors: where they are, and in what grid.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/layout/resolve.h"
#include "tests/testing/matchers.h"

namespace ckpt::layout {
namespace {

using ::testing::ElementsAre;
using testing::IsOk;
using ::testing::Pair;

constexpr const char* kObjectTable =
    "family f\n"
    "dim l = layers\n"
    "dim e = 3\n"
    "dim h = 4\n"
    "logical dense [l h] when l < first\n"
    "logical expert [l e h] when l >= first\n"
    "naming n\n"
    "  prefix p.\n"
    "  choice keys stacked | apart\n"
    "  choice extra yes | no\n"
    "  stack l when keys == \"stacked\"\n"
    "    layers.<l>.dense   : h = dense\n"
    "    layers.<l>.expert  : e h = expert\n"
    "    object layers.<l>.dense.state  : = dense\n"
    "    object layers.<l>.expert.state : e = expert when extra == \"yes\"\n"
    "  end\n";

std::vector<std::pair<std::string, Dims>> Objects(const Configuration& config,
                                                  const Choices& choices) {
  const auto table = ParseLayoutTable(kObjectTable, "t");
  EXPECT_THAT(table, IsOk());
  if (!table.ok()) return {};
  const auto layout = Resolve(*table, "n", config, choices);
  EXPECT_THAT(layout, IsOk());
  std::vector<std::pair<std::string, Dims>> objects;
  if (!layout.ok()) return objects;
  for (const ResolvedObject& object : layout->objects) {
    objects.emplace_back(object.name, object.grid);
  }
  return objects;
}

TEST(ObjectRulesTest, AreWhereTheirLogicalTensorIs) {
  EXPECT_THAT(
      Objects({{"layers", 2}, {"first", 1}}, {}),
      ElementsAre(Pair("layers.0.dense.state", Dims{}), Pair("layers.1.expert.state", Dims{3})));
}

TEST(ObjectRulesTest, AreStackedWithTheTensors) {
  EXPECT_THAT(Objects({{"layers", 2}, {"first", 0}}, {}),
              ElementsAre(Pair("layers.expert.state", Dims{2, 3})));
  EXPECT_THAT(Objects({{"layers", 2}, {"first", 2}}, {}),
              ElementsAre(Pair("layers.dense.state", Dims{2})));
}

TEST(ObjectRulesTest, FollowTheirConditions) {
  EXPECT_THAT(Objects({{"layers", 2}, {"first", 1}}, {{"extra", "no"}}),
              ElementsAre(Pair("layers.0.dense.state", Dims{})));
}

}  // namespace
}  // namespace ckpt::layout
