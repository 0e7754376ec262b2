#include "formats/megatron/root.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "formats/registry/locate.h"
#include "tests/testing/fault_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt::megatron {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::IsOkAndHolds;

const Path kRoot = "/run";

Status RemoveOldIterations(Storage& storage, const Path& root, const Retention& retention) {
  CKPT_RETURN_IF_ERROR(HideOldIterations(storage, root, retention));
  return RemoveHidden(storage, root);
}

class MegatronRootTest : public ::testing::Test {
 protected:
  void MakeIterations(const std::vector<std::int64_t>& iterations) {
    for (const std::int64_t iteration : iterations) {
      const Path directory = kRoot / IterationName(iteration);
      ASSERT_THAT(storage_->MakeDirectories(directory / "inner"), IsOk());
      ASSERT_THAT(WriteSmallFile(*storage_, directory / "inner" / "f", AsBytes("x")), IsOk());
    }
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    const std::vector<DirectoryEntry> entries = storage_->List(kRoot).value();
    for (const DirectoryEntry& entry : entries) names.push_back(entry.name);
    return names;
  }
  Result<std::string> Tracker() {
    return ReadSmallFile(*storage_, kRoot / std::string(kTrackerName), 100);
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(MegatronRootTest, NamesIterationsAsMegatronDoes) {
  EXPECT_EQ(IterationName(100), "iter_0000100");
  EXPECT_EQ(IterationName(12'345'678), "iter_12345678");
  EXPECT_EQ(NumberAfter("iter_", "iter_0000100"), 100);
  for (const char* name : {"iter_", "iter_1x", "iter_-1", "iter_1.ckptkit-partial", "it_1", "1",
                           "iter_99999999999999999999"}) {
    EXPECT_EQ(NumberAfter("iter_", name), std::nullopt) << name;
  }
}

TEST_F(MegatronRootTest, ListsIterationsInOrderAndNothingElse) {
  EXPECT_THAT(ListIterations(*storage_, kRoot), IsOkAndHolds(IsEmpty()));
  MakeIterations({10'000'000, 20, 3});
  ASSERT_THAT(storage_->MakeDirectories(kRoot / "iter_0000004.ckptkit-partial"), IsOk());
  ASSERT_THAT(storage_->MakeDirectories(kRoot / "release"), IsOk());
  ASSERT_THAT(WriteSmallFile(*storage_, kRoot / "iter_0000005", {}), IsOk());  // no directory
  EXPECT_THAT(ListIterations(*storage_, kRoot), IsOkAndHolds(ElementsAre(3, 20, 10'000'000)));
  const Path file = kRoot / std::string(kTrackerName);
  EXPECT_THAT(ListIterations(*storage_, file), IsOkAndHolds(IsEmpty()));
}

TEST_F(MegatronRootTest, PointsTheTrackerToAnIterationThatReadersFind) {
  MakeIterations({3, 20});
  for (const std::int64_t iteration : {3, 20, 3}) {
    ASSERT_THAT(PointTrackerTo(*storage_, kRoot, iteration), IsOk());
    EXPECT_THAT(Tracker(), IsOkAndHolds(std::to_string(iteration)));
    const auto located = LocateCheckpoint(*storage_, kRoot, std::nullopt);
    ASSERT_THAT(located, IsOk());
    EXPECT_EQ(located->path, kRoot / IterationName(iteration));
  }
  EXPECT_THAT(Names(), ElementsAre("iter_0000003", "iter_0000020", std::string(kTrackerName)));
}

TEST_F(MegatronRootTest, KeepsTheTrackerWhateverFails) {
  MakeIterations({1, 2});
  for (int call = 0;; ++call) {
    ASSERT_THAT(PointTrackerTo(*storage_, kRoot, 1), IsOk());
    testing::FaultStorage broken(*storage_, call);
    const Status status = PointTrackerTo(broken, kRoot, 2);
    const auto tracker = Tracker();
    ASSERT_THAT(tracker, IsOk());
    if (broken.calls() <= call) {
      EXPECT_THAT(status, IsOk());
      EXPECT_EQ(*tracker, "2");
      EXPECT_GE(call, 5);
      break;
    }
    EXPECT_THAT(status, FailsWith(ErrorKind::kIo));
    EXPECT_TRUE(*tracker == "1" || *tracker == "2") << *tracker;
  }
}

TEST_F(MegatronRootTest, RemovesTheOldestIterations) {
  MakeIterations({1, 2, 3, 10});
  ASSERT_THAT(RemoveOldIterations(*storage_, kRoot, {.newest = 10, .keep = 2}), IsOk());
  EXPECT_THAT(Names(), ElementsAre("iter_0000003", "iter_0000010"));
  ASSERT_THAT(RemoveOldIterations(*storage_, kRoot, {.newest = 10, .keep = 5}), IsOk());
  EXPECT_THAT(Names(), ElementsAre("iter_0000003", "iter_0000010"));
}

// A run that went back to 2 and saved 4 must not lose it to a 9 that is damaged.
TEST_F(MegatronRootTest, CountsNoLaterIterationAmongThoseItKeeps) {
  MakeIterations({1, 2, 4, 9});
  ASSERT_THAT(RemoveOldIterations(*storage_, kRoot, {.newest = 4, .keep = 1}), IsOk());
  EXPECT_THAT(Names(), ElementsAre("iter_0000004", "iter_0000009"));
}

// A damaged 6 is nobody's second checkpoint.
TEST_F(MegatronRootTest, NeitherCountsNorRemovesDamagedIterations) {
  MakeIterations({2, 4, 5, 6, 7});
  ASSERT_THAT(
      RemoveOldIterations(*storage_, kRoot, {.newest = 7, .keep = 2, .not_counted = {2, 6}}),
      IsOk());
  EXPECT_THAT(Names(), ElementsAre("iter_0000002", "iter_0000005", "iter_0000006", "iter_0000007"));
}

TEST_F(MegatronRootTest, RemovesWhatAnInterruptedRemovalLeft) {
  MakeIterations({1, 2, 3});
  ASSERT_THAT(storage_->Rename(kRoot / IterationName(1), kRoot / "iter_0000001.ckptkit-removed"),
              IsOk());
  ASSERT_THAT(storage_->MakeDirectories(kRoot / "mine.ckptkit-removed"), IsOk());
  ASSERT_THAT(RemoveOldIterations(*storage_, kRoot, {.newest = 3, .keep = 2}), IsOk());
  EXPECT_THAT(Names(), ElementsAre("iter_0000002", "iter_0000003", "mine.ckptkit-removed"));
}

TEST_F(MegatronRootTest, HidesIterationsBeforeItRemovesThem) {
  MakeIterations({1, 2, 3});
  ASSERT_THAT(HideOldIterations(*storage_, kRoot, {.newest = 3, .keep = 2}), IsOk());
  EXPECT_THAT(ListIterations(*storage_, kRoot).value(), ElementsAre(2, 3));
  EXPECT_THAT(Names(), ElementsAre("iter_0000001.ckptkit-removed", "iter_0000002", "iter_0000003"));
  ASSERT_THAT(RemoveHidden(*storage_, kRoot), IsOk());
  EXPECT_THAT(Names(), ElementsAre("iter_0000002", "iter_0000003"));
}

// Interrupted anywhere, no iteration is there in part; and the next removal makes up for it.
TEST_F(MegatronRootTest, LeavesNoPartOfAnIterationWhateverFails) {
  for (int call = 0;; ++call) {
    storage_ = MakeMemoryStorage();
    MakeIterations({1, 2, 3});
    testing::FaultStorage broken(*storage_, call);
    const Status status = RemoveOldIterations(broken, kRoot, {.newest = 3, .keep = 1});
    const std::vector<std::int64_t> left = ListIterations(*storage_, kRoot).value();
    for (const std::int64_t iteration : left) {
      EXPECT_EQ(storage_->Stat(kRoot / IterationName(iteration) / "inner" / "f")->type,
                FileType::kRegular);
    }
    EXPECT_EQ(left.back(), 3);
    ASSERT_THAT(RemoveOldIterations(*storage_, kRoot, {.newest = 3, .keep = 1}), IsOk());
    EXPECT_THAT(Names(), ElementsAre("iter_0000003"));
    if (broken.calls() > call) {
      EXPECT_THAT(status, FailsWith(ErrorKind::kIo));
      continue;
    }
    EXPECT_THAT(status, IsOk());
    EXPECT_GE(call, 6);
    break;
  }
}

TEST(IsLeftoverTest, KnowsTheNamesOfInterruptedWork) {
  EXPECT_TRUE(IsLeftover("iter_0000001.ckptkit-partial"));
  EXPECT_TRUE(IsLeftover("iter_0000001.ckptkit-removed"));
  EXPECT_TRUE(IsLeftover("latest_checkpointed_iteration.txt.ckptkit-partial"));
  EXPECT_FALSE(IsLeftover("iter_0000001"));
  EXPECT_FALSE(IsLeftover("latest_checkpointed_iteration.txt"));
}

}  // namespace
}  // namespace ckpt::megatron
