// Power failures behind every operation of a conversion, with every outcome of what was not synced.
#include "tests/reliability/crash_states.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/reliability/crash_storage.h"
#include "tests/reliability/flows.h"
#include "tests/reliability/small_model.h"
#include "tests/reliability/suite.h"
#include "tests/testing/matchers.h"

namespace ckpt::testing {
namespace {

// The parent does not exist before: its own name must become durable too.
const Path kTarget = "/runs/today/model";
constexpr int kHidden = 32;  // a few pages

// What one flow does to a disk, and what must be left of it.
class CrashStatesTest : public ::testing::TestWithParam<Flow> {
 protected:
  void SetUp() override {
    CrashStorage disk;
    ASSERT_THAT(WriteSource(disk, GetParam(), 1, kHidden, "/source"), IsOk());
    if (GetParam().overwrites) {
      const Flow old = OldOf(GetParam());
      ASSERT_THAT(WriteSource(disk, old, 2, kHidden, "/other"), IsOk());
      ASSERT_THAT(Run(disk, OptionsOf(old, "/other", kTarget)), IsOk());
      const auto old_digest = ReadCheckpoint(disk, kTarget);
      ASSERT_THAT(old_digest, IsOk());
      old_digest_ = *old_digest;
    }
    start_ = disk.image();
    CrashStorage undisturbed(start_);
    ASSERT_THAT(Run(undisturbed, Options()), IsOk());
    const auto new_digest = ReadCheckpoint(undisturbed, kTarget);
    ASSERT_THAT(new_digest, IsOk());
    new_digest_ = *new_digest;
    new_hashes_.insert(HashTarget(undisturbed.image()));
    ops_ = undisturbed.ops();
    syncs_ = undisturbed.syncs();
    // Parts of a target have other names when it was replaced once more.
    CrashStorage twice(undisturbed.image());
    ASSERT_THAT(Run(twice, RecoveryOptions()), IsOk());
    EXPECT_EQ(Read(twice.image(), kTarget), new_digest_);
    new_hashes_.insert(HashTarget(twice.image()));
    EXPECT_EQ(new_hashes_.size(), GetParam().files == 0 ? 1 : 2);
  }

  static Result<ConvertReport> Run(Storage& storage, const ConvertOptions& options) {
    return RunFlow(storage, GetParam(), options);
  }
  static ConvertOptions Options() { return OptionsOf(GetParam(), "/source", kTarget); }
  // After a failure one goes on, whatever the first run came to.
  static ConvertOptions RecoveryOptions() {
    ConvertOptions options = Options();
    options.resume = !GetParam().links;  // which copies nothing that could be taken up
    options.overwrite = true;
    return options;
  }

  // Of the target and of what lies beside it, without what a run has not published.
  static std::string HashTarget(const DiskImage& image) {
    const Path parent = kTarget.parent_path();
    const std::optional<NodeId> directory = image.Find(parent);
    if (!directory) return kNothing;
    std::string hash;
    for (const auto& [name, child] : image.node(*directory).entries) {
      if (name.ends_with(kStagingEnd)) continue;
      hash += name + " " + image.HashTree(parent / name) + "\n";
    }
    return hash;
  }

  // Fails the suite unless a reader of `image` sees the old checkpoint (nothing, if there was none)
  // or the new one, and the new one if it `must_be_new`.
  void Check(const DiskImage& image, bool must_be_new, const std::string& where, Suite& suite) {
    suite.Count();
    const std::string hash = HashTarget(image);
    auto seen = verdicts_.find(hash);
    if (seen == verdicts_.end()) seen = verdicts_.emplace(hash, Read(image, kTarget)).first;
    // What an old target showed is removed when the new one is there.
    const bool may_hold_more = replaces_parts_ && !must_be_new;
    const bool is_new =
        seen->second == new_digest_ && (new_hashes_.contains(hash) || may_hold_more);
    const bool is_old = seen->second == old_digest_;
    if (!is_new && (must_be_new || !is_old)) suite.Fail(where + ": a reader sees " + seen->second);
    CheckStaging(image, where, suite);
  }

  // What lies beside the target may look whole only if it is.
  void CheckStaging(const DiskImage& image, const std::string& where, Suite& suite) {
    const Path staging = kTarget.string() + kStagingEnd;
    if (!distinct_staging_.insert(image.HashTree(staging)).second) return;
    CrashStorage disk(image);
    const Result<std::string> digest = ReadCheckpoint(disk, staging);
    if (digest.ok() && *digest != new_digest_ && *digest != old_digest_) {
      suite.Fail(where + ": an incomplete result looks whole");
    }
  }

  // The digest of what a reader sees, "nothing", or what is wrong with it.
  static std::string Read(const DiskImage& image, const Path& path) {
    if (!image.Find(path)) return kNothing;
    CrashStorage disk(image);
    const Result<std::string> digest = ReadCheckpoint(disk, path);
    return digest.ok() ? *digest : digest.status().ToString();
  }

  // Another run on the disk that the failure left must give the new checkpoint, and keep it.
  void Recover(const DiskImage& image, const std::string& where, Suite& suite) {
    suite.Count();
    CrashStorage disk(image);
    const auto report = Run(disk, RecoveryOptions());
    if (!report.ok()) {
      suite.Fail(where + ": recovery fails: " + report.status().ToString());
      return;
    }
    ForEachCrashState(image, disk.ops(), {.max_states = 1}, [&](const DiskImage& durable) {
      if (!new_hashes_.contains(HashTarget(durable))) {
        suite.Fail(where + ": recovery gives " + Read(durable, kTarget));
      }
    });
  }

  // Every state behind each of the operations from number `first` on.
  void Enumerate(const std::vector<StorageOp>& ops, std::size_t first, std::size_t max_states,
                 const std::string& what, Suite& suite) {
    for (std::size_t length = first; length <= ops.size(); ++length) {
      const std::string where =
          fmt::format("{}, behind operation {} of {}", what, length, ops.size());
      const CrashStateOptions options{.max_states = max_states, .seed = TestSeed(kDefaultSeed)};
      const auto visit = [&](const DiskImage& image) {
        Check(image, length == ops.size(), where, suite);
        if (!distinct_.insert(image.HashTree("/runs")).second) return;
        if (distinct_.size() % RecoveryStride() == 0) Recover(image, where, suite);
      };
      ForEachCrashState(start_, std::span(ops).first(length), options, visit);
    }
  }

  void NoteDistinct(Suite& suite) const {
    suite.Note(fmt::format("{} disks, {} targets, {} operations", distinct_.size(),
                           verdicts_.size(), ops_.size()));
  }

  static std::size_t RecoveryStride() { return IsLongRun() ? 20 : 50; }
  // A run has many files, so the states after each of its operations are shared among more of them.
  static std::size_t Share() { return GetParam().run.empty() ? 1 : 6; }

  static constexpr char kNothing[] = "nothing";
  static constexpr char kStagingEnd[] = ".ckptkit-partial";

  DiskImage start_;
  std::string old_digest_ = kNothing;
  std::string new_digest_;
  std::set<std::string> new_hashes_;
  bool replaces_parts_ = GetParam().old_files > 0;
  std::vector<StorageOp> ops_;
  int syncs_ = 0;

 private:
  std::map<std::string, std::string> verdicts_;  // of targets, by hash
  std::unordered_set<std::string> distinct_;
  std::unordered_set<std::string> distinct_staging_;
};

INSTANTIATE_TEST_SUITE_P(Flows, CrashStatesTest, ::testing::ValuesIn(Flows()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(CrashStatesTest, LeaveTheOldOrTheNewCheckpointNeverAMixture) {
  Suite suite(fmt::format("crash states, {}", GetParam().name));
  const std::size_t most = IsLongRun() ? 20'000 : 400;
  Enumerate(ops_, 0, most / Share(), "first run", suite);
  NoteDistinct(suite);
}

// The first run is killed, without a power failure: what it wrote is in memory, not on the disk.
TEST_P(CrashStatesTest, OfARunThatGoesOnAfterAKillAreTheSame) {
  Suite suite(fmt::format("crash states after a kill, {}", GetParam().name));
  replaces_parts_ = replaces_parts_ || GetParam().files > 0;  // those of the run that was killed
  const std::size_t step = std::max<std::size_t>(ops_.size() / (IsLongRun() ? 40 : 4), 1);
  for (std::size_t killed = 1; killed < ops_.size(); ++killed) {
    // Behind a step that changes names the most is at stake.
    const StorageOp::Kind kind = ops_[killed - 1].kind;
    const bool moves = kind == StorageOp::Kind::kMove || kind == StorageOp::Kind::kExchange;
    if (killed % step != 0 && !moves) continue;
    CrashStorage disk(start_);
    disk.StopAt(killed);
    EXPECT_FALSE(Run(disk, Options()).ok());
    disk.StopAt(std::nullopt);
    EXPECT_THAT(Run(disk, RecoveryOptions()), IsOk());
    Enumerate(disk.ops(), killed, (IsLongRun() ? 2'000 : 48) / Share(),
              fmt::format("killed behind operation {}", killed), suite);
  }
  NoteDistinct(suite);
}

// The kernel reports a failed write-back once and then takes the bytes for written.
TEST_P(CrashStatesTest, AfterAFailedSyncNothingIsTakenForDurable) {
  Suite suite(fmt::format("failed syncs, {}", GetParam().name));
  for (int sync = 0; sync < syncs_; ++sync) {
    CrashStorage disk(start_);
    disk.FailSync(sync);
    EXPECT_FALSE(Run(disk, Options()).ok());
    disk.FailSync(std::nullopt);
    EXPECT_THAT(Run(disk, RecoveryOptions()), IsOk());
    Enumerate(disk.ops(), disk.ops().size(), IsLongRun() ? 64 : 24,
              fmt::format("sync {} failed", sync), suite);
  }
}

TEST(CrashStateModel, KeepsWhatWasSyncedAndNothingElse) {
  CrashStorage disk;
  auto file = disk.Create("/a");
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->WriteAt(0, Bytes(600)), IsOk());
  const auto contents = [&] {
    std::set<std::string> seen;
    ForEachCrashState({}, disk.ops(), {}, [&](const DiskImage& image) {
      const auto id = image.Find("/a");
      seen.insert(id ? fmt::format("{}", image.node(*id).bytes().size()) : "absent");
    });
    return seen;
  };
  EXPECT_THAT(contents(), ::testing::UnorderedElementsAre("absent", "0", "512", "600"));
  ASSERT_THAT((*file)->Sync(), IsOk());
  EXPECT_THAT(contents(), ::testing::UnorderedElementsAre("absent", "600"));
  ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
  EXPECT_THAT(contents(), ::testing::UnorderedElementsAre("600"));
}

TEST(CrashStateModel, LosesForeverWhatAFailedSyncDidNotWrite) {
  CrashStorage disk;
  auto file = disk.Create("/a");
  ASSERT_THAT(file, IsOk());
  disk.FailSync(0);
  ASSERT_THAT((*file)->WriteAt(0, AsBytes("x")), IsOk());
  EXPECT_THAT((*file)->Sync(), FailsWith(ErrorKind::kIo));
  ASSERT_THAT((*file)->Sync(), IsOk());
  ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
  bool lost = false;
  ForEachCrashState({}, disk.ops(), {}, [&](const DiskImage& image) {
    lost = lost || image.node(*image.Find("/a")).bytes().empty();
  });
  EXPECT_TRUE(lost);
}

}  // namespace
}  // namespace ckpt::testing
