// What a run goes on from is opened once, whoever reads it, and let go of when all have.
#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/mutex.h"
#include "core/io/forwarding_storage.h"
#include "core/io/memory_storage.h"
#include "formats/megatron/root.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/run/small_session.h"
#include "trainer/run/internal/stored_run.h"

namespace ckpt::train {
namespace {

using testing::CheckState;
using testing::FailsWith;
using testing::IsOk;
using testing::SaveState;
using testing::SmallSessions;
using testing::TinySettings;
using testing::With;
using trainer::HostGroup;

const Path kLoadRoot = "/runs/a";

// Counts what is opened to be read, and knows what still is.
class WatchedStorage final : public ForwardingStorage {
 public:
  using ForwardingStorage::ForwardingStorage;

  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, behind().Open(path));
    // Its own use count, whoever else has the file behind it.
    file = std::shared_ptr<const ReadableFile>(
        file.get(), [file](const ReadableFile* /*itself*/) mutable { file.reset(); });
    const MutexLock lock(mutex_);
    opened_[path.filename().string()].push_back(file);
    return file;
  }

  // How often files of this name were opened.
  std::size_t NumOpened(const std::string& name) {
    const MutexLock lock(mutex_);
    return opened_[name].size();
  }
  // Names of files that somebody has open.
  std::vector<std::string> StillOpen() {
    const MutexLock lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, files] : opened_) {
      if (!std::ranges::all_of(files, [](const auto& file) { return file.expired(); })) {
        names.push_back(name);
      }
    }
    return names;
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::vector<std::weak_ptr<const ReadableFile>>> opened_
      CKPT_GUARDED_BY(mutex_);
};

class LoadRunTest : public ::testing::Test {
 protected:
  LoadRunTest() {
    auto sessions =
        SmallSessions::Create(*disk_, With(TinySettings(), {{"save", kLoadRoot.string()}}), 2);
    EXPECT_THAT(sessions, IsOk());
    EXPECT_THAT(sessions->Run([&](RankSession& session, HostGroup&) -> Status {
      for (const std::int64_t iteration : {1, 2}) {
        CKPT_RETURN_IF_ERROR(SaveState(session, static_cast<std::uint64_t>(iteration), iteration));
      }
      return OkStatus();
    }),
                IsOk());
  }

  static layout::Configuration GoOn(int ranks) {
    return {{"load", kLoadRoot.string()}, {"global_batch_size", ranks}};
  }

  std::unique_ptr<Storage> disk_ = MakeMemoryStorage();
};

// Of what was read for the settings, loading reads the bytes of `.metadata` again, for its
// checksum.
TEST_F(LoadRunTest, ReadsMetadataOnceForSettingsAndAllRanks) {
  for (const int ranks : {1, 2, 4}) {
    WatchedStorage storage(*disk_);
    auto sessions = SmallSessions::Create(storage, GoOn(ranks), ranks);
    ASSERT_THAT(sessions, IsOk());
    EXPECT_EQ(storage.NumOpened(".metadata"), 1U) << ranks;
    const std::size_t manifests = storage.NumOpened("ckptkit.json");
    EXPECT_GE(manifests, 1U);
    EXPECT_THAT(sessions->Run([](RankSession& session, HostGroup&) -> Status {
      CKPT_RETURN_IF_ERROR(session.Start().status());
      return CheckState(session.trainer(), 2);
    }),
                IsOk());
    EXPECT_EQ(storage.NumOpened(".metadata"), 2U) << ranks;
    EXPECT_EQ(storage.NumOpened("ckptkit.json"), manifests) << ranks;
  }
}

TEST_F(LoadRunTest, HasNoFileOpenOnceAllRanksHaveLoaded) {
  WatchedStorage storage(*disk_);
  auto sessions = SmallSessions::Create(storage, GoOn(4), 4);
  ASSERT_THAT(sessions, IsOk());
  EXPECT_FALSE(storage.StillOpen().empty());
  EXPECT_THAT(sessions->Run([&](RankSession& session, HostGroup& world) -> Status {
    CKPT_RETURN_IF_ERROR(session.Start().status());
    CKPT_RETURN_IF_ERROR(world.Barrier());
    EXPECT_THAT(storage.StillOpen(), ::testing::IsEmpty());
    return world.Barrier();
  }),
              IsOk());
}

// What was read with the metadata is what the files are compared with: the checkpoint that the
// settings are from.
// What was opened is the state of 2; what lies there by now is that of 7.
TEST_F(LoadRunTest, LoadsNoMixtureWithACheckpointThatReplacedIt) {
  auto sessions = SmallSessions::Create(*disk_, GoOn(2), 2);
  ASSERT_THAT(sessions, IsOk());
  const Path newest = kLoadRoot / megatron::IterationName(2);
  ASSERT_THAT(disk_->RemoveAll(newest), IsOk());
  auto other =
      SmallSessions::Create(*disk_, With(TinySettings(), {{"save", kLoadRoot.string()}}), 2);
  ASSERT_THAT(other, IsOk());
  ASSERT_THAT(other->Run([](RankSession& session, HostGroup&) { return SaveState(session, 7, 2); }),
              IsOk());
  EXPECT_THAT(sessions->Run([](RankSession& session, HostGroup&) -> Status {
    CKPT_ASSIGN_OR_RETURN(const RunProgress progress, session.Start());
    EXPECT_THAT(progress.iteration, ::testing::AnyOf(1, 2));
    return CheckState(session.trainer(), static_cast<std::uint64_t>(progress.iteration));
  }),
              IsOk());
}

// The files that were opened are gone with their directory; what is left to read is not theirs.
TEST_F(LoadRunTest, RefusesACheckpointWhoseOtherFilesWereReplacedSinceItWasOpened) {
  auto sessions = SmallSessions::Create(*disk_, GoOn(2), 2);
  ASSERT_THAT(sessions, IsOk());
  const Path newest = kLoadRoot / megatron::IterationName(2);
  ASSERT_THAT(ReplaceSmallFile(*disk_, newest / ".metadata", AsBytes("no pickle")), IsOk());
  EXPECT_THAT(sessions->Run([](RankSession& session, HostGroup&) -> Status {
    CKPT_ASSIGN_OR_RETURN(const RunProgress progress, session.Start());
    EXPECT_EQ(progress.iteration, 1);
    return CheckState(session.trainer(), 1);
  }),
              IsOk());
  EXPECT_THAT(sessions->notices(),
              ::testing::Contains(::testing::HasSubstr("cannot resume " + newest.string())));
}

TEST_F(LoadRunTest, LoadsAgainInTheSameProcess) {
  auto sessions = SmallSessions::Create(*disk_, GoOn(2), 2);
  ASSERT_THAT(sessions, IsOk());
  for (int time = 0; time < 2; ++time) {
    EXPECT_THAT(sessions->Run([](RankSession& session, HostGroup&) -> Status {
      CKPT_RETURN_IF_ERROR(session.Start().status());
      return CheckState(session.trainer(), 2);
    }),
                IsOk());
  }
}

// Another program's settings may not say it.
TEST(LoadFrozenRunTest, SaysHowToKeepFrozenWhatTheOptimizerKeepsNothingFor) {
  const std::unique_ptr<Storage> disk = MakeMemoryStorage();
  auto saved = SmallSessions::Create(
      *disk,
      With(TinySettings(),
           {{"save", kLoadRoot.string()}, {"frozen", layout::Value::List{"embedding.*"}}}),
      1);
  ASSERT_THAT(saved, IsOk());
  ASSERT_THAT(saved->Run([](RankSession& session, HostGroup&) { return SaveState(session, 1, 1); }),
              IsOk());
  const auto load = [&](const layout::Value::List& frozen) -> Status {
    CKPT_ASSIGN_OR_RETURN(
        SmallSessions sessions,
        SmallSessions::Create(
            *disk, {{"load", kLoadRoot.string()}, {"global_batch_size", 1}, {"frozen", frozen}},
            1));
    return sessions.Run([](RankSession& session, HostGroup&) { return session.Start().status(); });
  };
  const Status refused = load({});
  ASSERT_THAT(refused, FailsWith(ErrorKind::kMissing));
  EXPECT_EQ(refused.problems().size(), 1U);
  EXPECT_EQ(refused.first().tensor, "embedding.word_embeddings.weight");
  EXPECT_THAT(refused.first().message, ::testing::HasSubstr("optimizer keeps nothing"));
  EXPECT_THAT(refused.first().hint,
              ::testing::HasSubstr("--set frozen=embedding.word_embeddings.weight"));
  EXPECT_THAT(load({"embedding.word_embeddings.weight"}), IsOk());
}

// Does not list what was published a moment ago, as another node may.
class LateStorage final : public ForwardingStorage {
 public:
  LateStorage(Storage& behind, std::string unseen)
      : ForwardingStorage(behind), unseen_(std::move(unseen)) {}

  Result<std::vector<DirectoryEntry>> List(const Path& directory) override {
    CKPT_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries, behind().List(directory));
    std::erase_if(entries, [&](const DirectoryEntry& entry) { return entry.name == unseen_; });
    return entries;
  }

 private:
  std::string unseen_;
};

TEST_F(LoadRunTest, EveryRankLoadsWhatRank0Chooses) {
  for (const int late_rank : {0, 1}) {
    LateStorage late(*disk_, megatron::IterationName(2));
    auto sessions = SmallSessions::Create(*disk_, GoOn(2), 2);
    ASSERT_THAT(sessions, IsOk());
    sessions->storage_of = [&](int rank) -> Storage& {
      return rank == late_rank ? static_cast<Storage&>(late) : *disk_;
    };
    const std::int64_t expected = late_rank == 0 ? 1 : 2;
    EXPECT_THAT(sessions->Run([&](RankSession& session, HostGroup&) -> Status {
      CKPT_ASSIGN_OR_RETURN(const RunProgress progress, session.Start());
      EXPECT_EQ(progress.iteration, expected);
      return CheckState(session.trainer(), static_cast<std::uint64_t>(expected));
    }),
                IsOk());
  }
}

// Folders of one name on disks of their own.
TEST_F(LoadRunTest, RefusesWhenRanksSeeDifferentCheckpoints) {
  const std::unique_ptr<Storage> other_disk = MakeMemoryStorage();
  auto other =
      SmallSessions::Create(*other_disk, With(TinySettings(), {{"save", kLoadRoot.string()}}), 2);
  ASSERT_THAT(other, IsOk());
  ASSERT_THAT(other->Run([](RankSession& session, HostGroup&) { return SaveState(session, 5, 1); }),
              IsOk());
  ASSERT_THAT(disk_->RemoveAll(kLoadRoot / megatron::IterationName(2)), IsOk());
  auto sessions = SmallSessions::Create(*disk_, GoOn(2), 2);
  ASSERT_THAT(sessions, IsOk());
  sessions->storage_of = [&](int rank) -> Storage& { return rank == 0 ? *disk_ : *other_disk; };
  sessions->run().stored->Close();  // processes have one each
  EXPECT_THAT(sessions->Run([](RankSession& session, HostGroup&) -> Status {
    return session.Start().status();
  }),
              FailsWith(ErrorKind::kValueMismatch));
}

TEST_F(LoadRunTest, SavesOverNoOtherRunsCheckpoints) {
  const auto check = [&](const Path& load, const Path& save, bool goes_on) {
    CheckpointSettings settings;
    settings.load = load;
    settings.save = save;
    return CheckReplacesNoOtherRun(*disk_, settings, goes_on);
  };
  const Path newest = kLoadRoot / megatron::IterationName(2);
  EXPECT_THAT(check("", "", false), IsOk());
  EXPECT_THAT(check(kLoadRoot, "/runs/new", true), IsOk());
  EXPECT_THAT(check(kLoadRoot, kLoadRoot, true), IsOk());
  EXPECT_THAT(check(newest, kLoadRoot, true), IsOk());
  EXPECT_THAT(check("/runs/b", kLoadRoot, false), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(check("/runs/b", kLoadRoot, true), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(check(kLoadRoot, kLoadRoot, false), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(check(kLoadRoot / megatron::IterationName(1), kLoadRoot, true),
              FailsWith(ErrorKind::kAlreadyExists));
}

}  // namespace
}  // namespace ckpt::train
