#include "trainer/comm/machine.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "trainer/comm/thread_comm.h"

namespace ckpt::trainer {
namespace {

using testing::IsOk;

MachineName Named(std::string_view text) {
  MachineName name{};
  std::ranges::copy(text, name.begin());
  return name;
}

// A launcher may fill one machine after the other, or give each machine a rank in turn.
TEST(MachineTest, RanksAreCountedOnEachMachine) {
  const MachineName a = Named("a");
  const MachineName b = Named("b");
  const auto places = [](const std::array<MachineName, 4>& names) {
    std::array<int, 4> all{};
    for (int rank = 0; rank < 4; ++rank) {
      all[static_cast<std::size_t>(rank)] = PlaceOnMachine(names, rank);
    }
    return all;
  };
  EXPECT_EQ(places({a, a, b, b}), (std::array{0, 1, 0, 1}));
  EXPECT_EQ(places({a, b, a, b}), (std::array{0, 0, 1, 1}));
  EXPECT_EQ(places({b, a, a, a}), (std::array{0, 0, 1, 2}));
}

TEST(MachineTest, AMachineHasOneName) {
  EXPECT_EQ(ThisMachine(), ThisMachine());
  EXPECT_NE(ThisMachine(), MachineName{});
}

TEST(MachineTest, ThreadsShareTheirMachine) {
  EXPECT_THAT(RunRanks(3,
                       [](HostGroup& world) -> Status {
                         CKPT_ASSIGN_OR_RETURN(const int place, RankOnMachine(world));
                         EXPECT_EQ(place, world.rank());
                         CKPT_ASSIGN_OR_RETURN(const auto machine, SplitByMachine(world));
                         EXPECT_EQ(machine->rank(), world.rank());
                         EXPECT_EQ(machine->size(), world.size());
                         return OkStatus();
                       }),
              IsOk());
}

}  // namespace
}  // namespace ckpt::trainer
