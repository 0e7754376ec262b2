// What the checkpoints of a run take on the disk, before there are any.
#include "trainer/run/save_room.h"

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"
#include "trainer/run/loop_settings.h"

namespace ckpt::train {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

TEST(CountSavesTest, CountsMultiplesAndTheEnd) {
  EXPECT_EQ(CountSaves(0, 10, 0), 1);
  EXPECT_EQ(CountSaves(0, 10, 5), 2);
  EXPECT_EQ(CountSaves(0, 10, 4), 3);
  EXPECT_EQ(CountSaves(4, 10, 4), 2);
  EXPECT_EQ(CountSaves(7, 10, 4), 2);
  EXPECT_EQ(CountSaves(0, 3, 100), 1);
  EXPECT_EQ(CountSaves(10, 10, 4), 0);
}

TEST(CountSavesTest, ARunEndsAtTheNextExitInterval) {
  const auto saves = [](std::int64_t iteration, std::int64_t exit_interval) {
    LoopSettings loop;
    loop.train_iters = 10;
    loop.exit_interval = exit_interval;
    return CountSaves(iteration, LastStep(loop, iteration), 2);
  };
  EXPECT_EQ(saves(0, 0), 5);
  EXPECT_EQ(saves(0, 3), 2) << "after steps 2 and 3";
  EXPECT_EQ(saves(3, 3), 2) << "after steps 4 and 6";
  EXPECT_EQ(saves(9, 3), 1);
  EXPECT_EQ(saves(0, 100), 5);
}

SavesAhead Ahead(std::int64_t saves, std::int64_t keep, std::vector<std::uint64_t> old = {}) {
  SavesAhead ahead;
  ahead.saves = saves;
  ahead.keep = keep;
  ahead.checkpoint_bytes = 100;
  ahead.old_bytes = std::move(old);
  return ahead;
}

TEST(SaveRoomTest, ANewOneIsThereBeforeAnOldOneGoes) {
  const SavesAhead keeps_all = Ahead(5, 0);
  EXPECT_EQ(BytesAtSave(keeps_all, 1), 100U);
  EXPECT_EQ(BytesAtSave(keeps_all, 5), 500U);
  const SavesAhead keeps_two = Ahead(9, 2);
  EXPECT_EQ(BytesAtSave(keeps_two, 2), 200U);
  EXPECT_EQ(BytesAtSave(keeps_two, 3), 300U);
  EXPECT_EQ(BytesAtSave(keeps_two, 9), 300U);
  // The first save removes one of those that were there, the second the other.
  const SavesAhead goes_on = Ahead(9, 2, {70, 80});
  EXPECT_EQ(BytesAtSave(goes_on, 1), 100U);
  EXPECT_EQ(BytesAtSave(goes_on, 2), 200U - 70U);
  EXPECT_EQ(BytesAtSave(goes_on, 3), 300U - 70U - 80U);
}

TEST(SaveRoomTest, RefusesWhatTheDiskCannotHold) {
  EXPECT_THAT(CheckRoomForSaves("/out", Ahead(5, 0), 100), IsOk()) << "the rest may be moved away";
  EXPECT_EQ(SavesThatFit(Ahead(5, 0), 250), 2);
  const Status none = CheckRoomForSaves("/out", Ahead(5, 0), 99);
  ASSERT_THAT(none, FailsWith(ErrorKind::kNoSpace));
  EXPECT_EQ(none.first().expected, "100 B (100 bytes) free");
  EXPECT_EQ(none.first().actual, "99 B (99 bytes)");

  EXPECT_THAT(CheckRoomForSaves("/out", Ahead(5, 2), 300), IsOk());
  EXPECT_THAT(CheckRoomForSaves("/out", Ahead(2, 2), 200), IsOk());
  const Status kept = CheckRoomForSaves("/out", Ahead(5, 2), 299);
  ASSERT_THAT(kept, FailsWith(ErrorKind::kNoSpace));
  EXPECT_EQ(kept.first().expected, "300 B (300 bytes) free");
  EXPECT_THAT(kept.first().hint, HasSubstr("keep_checkpoints=2 leaves up to 2"));
}

}  // namespace
}  // namespace ckpt::train
