// A damaged checkpoint is never gone on from, and never passed over in silence.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/memory_storage.h"
#include "formats/megatron/root.h"
#include "formats/registry/registry.h"
#include "tests/reliability/small_model.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/run/small_session.h"

namespace ckpt::train {
namespace {

using testing::CheckState;
using ::testing::Contains;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::SaveState;
using testing::SmallSessions;
using testing::Tree;
using trainer::HostGroup;

const Path kRoot = "/runs/a";
constexpr int kRanks = 2;

// What may happen to a file.
struct Damage {
  const char* name;
  std::function<void(std::string& content)> apply;
};

std::vector<Damage> Damages() {
  const auto flip = [](std::size_t at) {
    return [at](std::string& content) {
      const std::size_t byte = at * (content.size() - 1) / 4;
      content[byte] = static_cast<char>(content[byte] ^ 0x10);
    };
  };
  return {{"first byte", flip(0)},
          {"a quarter in", flip(1)},
          {"half way", flip(2)},
          {"three quarters in", flip(3)},
          {"last byte", flip(4)},
          {"cut by one", [](std::string& content) { content.pop_back(); }},
          {"cut in half", [](std::string& content) { content.resize(content.size() / 2); }},
          {"empty", [](std::string& content) { content.clear(); }},
          {"zeros", [](std::string& content) { content.assign(content.size(), '\0'); }},
          {"longer", [](std::string& content) { content += "x"; }}};
}

// Three iterations, each the state of its number; side files among them.
class DamagedCheckpointTest : public ::testing::Test {
 protected:
  DamagedCheckpointTest() {
    EXPECT_THAT(testing::WriteSmallModel(*storage_, "/hf", {.hidden = 16}), IsOk());
    auto sessions = SmallSessions::Create(
        *storage_,
        {{"init", "hf:/hf"}, {"seq_length", 4}, {"train_iters", 9}, {"save", kRoot.string()}}, 2);
    EXPECT_THAT(sessions, IsOk());
    EXPECT_THAT(sessions->Run([&](RankSession& session, HostGroup&) -> Status {
      for (const std::int64_t iteration : {1, 2, 3}) {
        CKPT_RETURN_IF_ERROR(SaveState(session, static_cast<std::uint64_t>(iteration), iteration));
      }
      return OkStatus();
    }),
                IsOk());
    files_ = testing::ReadTree(*storage_, Iteration(3)).value();
  }

  static Path Iteration(std::int64_t number) { return kRoot / megatron::IterationName(number); }

  void Put(const Path& path, const std::string& content) {
    ASSERT_THAT(storage_->RemoveAll(path), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, path, AsBytes(content)), IsOk());
  }

  // What a run goes on with: the iteration; and it is whole.
  Result<std::int64_t> GoOn(int ranks = kRanks, const layout::Configuration& more = {}) {
    notices_.clear();
    CKPT_ASSIGN_OR_RETURN(
        SmallSessions sessions,
        SmallSessions::Create(
            *storage_,
            testing::With({{"load", kRoot.string()}, {"global_batch_size", ranks}}, more), ranks));
    std::int64_t iteration = -1;
    const Status status = sessions.Run([&](RankSession& session, HostGroup& world) -> Status {
      CKPT_ASSIGN_OR_RETURN(const RunProgress progress, session.Start());
      if (world.rank() == 0) iteration = progress.iteration;
      return CheckState(session.trainer(), static_cast<std::uint64_t>(progress.iteration));
    });
    notices_ = sessions.notices();
    if (!status.ok()) return status;
    return iteration;
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
  Tree files_;  // of the newest
  std::vector<std::string> notices_;
};

TEST_F(DamagedCheckpointTest, TakesTheNewestWhereNothingIsDamaged) {
  EXPECT_THAT(GoOn(), testing::IsOkAndHolds(3));
  EXPECT_THAT(notices_, Contains(HasSubstr("loaded " + Iteration(3).string())));
  EXPECT_THAT(notices_, ::testing::Not(Contains(HasSubstr("cannot resume"))));
}

TEST_F(DamagedCheckpointTest, TakesTheOneBeforeAndSaysWhyWhateverFileIsDamaged) {
  ASSERT_GE(files_.size(), 5U);  // a file a rank, .metadata, manifest, config.json
  int tried = 0;
  for (const auto& [name, content] : files_) {
    for (const Damage& damage : Damages()) {
      SCOPED_TRACE(name + ", " + damage.name);
      std::string damaged = content;
      damage.apply(damaged);
      ASSERT_NE(damaged, content);
      Put(Iteration(3) / name, damaged);
      EXPECT_THAT(GoOn(), testing::IsOkAndHolds(2));
      EXPECT_THAT(notices_, Contains(HasSubstr("cannot resume " + Iteration(3).string())));
      EXPECT_THAT(notices_, Contains(HasSubstr(name)));
      EXPECT_THAT(notices_, Contains(HasSubstr("takes " + Iteration(2).string() + " instead")));
      ++tried;
    }
    Put(Iteration(3) / name, content);
  }
  EXPECT_GE(tried, 50);
  EXPECT_THAT(GoOn(), testing::IsOkAndHolds(3));
}

// The tensor that `verify` names, too: the one whose bytes these are.
TEST_F(DamagedCheckpointTest, NamesTheTensorOfAFlippedByte) {
  const auto opened = OpenCheckpoint(*storage_, Iteration(3));
  ASSERT_THAT(opened, IsOk());
  const CheckpointIndex& index = opened->source->index();
  for (const GlobalTensor& tensor : index.tensors()) {
    SCOPED_TRACE(tensor.key);
    for (const Chunk& chunk : index.chunks(tensor)) {
      const auto array = opened->source->Locate(tensor, chunk);
      ASSERT_THAT(array, IsOk());
      const std::string& name = index.files()[chunk.file];
      std::string damaged = files_.at(name);
      damaged[array->offset_bytes] = static_cast<char>(damaged[array->offset_bytes] ^ 4);
      Put(Iteration(3) / name, damaged);
      EXPECT_THAT(GoOn(), testing::IsOkAndHolds(2));
      EXPECT_THAT(notices_,
                  Contains(HasSubstr("bit 2 of byte " + std::to_string(array->offset_bytes) +
                                     " is flipped: " + (Iteration(3) / name).string())));
      EXPECT_THAT(notices_, Contains(HasSubstr(": " + tensor.key + ": ")));
      Put(Iteration(3) / name, files_.at(name));
    }
  }
}

// One rank finds the damage while it reads; the others are in a collective by then, or wait for it
// in one.
TEST_F(DamagedCheckpointTest, LeavesNoRankWaitingWhateverTheStrategy) {
  struct Mesh {
    const char* name;
    int ranks;
    layout::Configuration settings;
  };
  std::vector<Mesh> meshes;
  for (const char* strategy : {"no_shard", "optim", "optim_grads", "optim_grads_params"}) {
    meshes.push_back({strategy, 2, {{"data_parallel_sharding_strategy", strategy}}});
  }
  for (const char* outer : {"no_shard", "optim"}) {
    meshes.push_back(
        {outer,
         4,
         {{"num_distributed_optimizer_instances", 2}, {"outer_dp_sharding_strategy", outer}}});
  }
  for (const Mesh& mesh : meshes) {
    EXPECT_THAT(GoOn(mesh.ranks, mesh.settings), testing::IsOkAndHolds(3)) << mesh.name;
    for (const auto& [name, content] : files_) {
      if (!name.ends_with(".distcp")) continue;
      SCOPED_TRACE(std::string(mesh.name) + ", " + name);
      std::string damaged = content;
      damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
      Put(Iteration(3) / name, damaged);
      EXPECT_THAT(GoOn(mesh.ranks, mesh.settings), testing::IsOkAndHolds(2));
      Put(Iteration(3) / name, content);
    }
  }
}

TEST_F(DamagedCheckpointTest, TakesTheOneBeforeWhenAFileIsGone) {
  for (const auto& [name, content] : files_) {
    if (name == "ckptkit.json") continue;  // without it, it is like one of another program's
    SCOPED_TRACE(name);
    ASSERT_THAT(storage_->RemoveAll(Iteration(3) / name), IsOk());
    EXPECT_THAT(GoOn(), testing::IsOkAndHolds(2));
    EXPECT_THAT(notices_, Contains(HasSubstr("cannot resume " + Iteration(3).string())));
    Put(Iteration(3) / name, content);
  }
}

TEST_F(DamagedCheckpointTest, GoesBackAsFarAsItMust) {
  for (const std::int64_t iteration : {3, 2}) {
    Put(Iteration(iteration) / ".metadata", "no pickle");
  }
  EXPECT_THAT(GoOn(), testing::IsOkAndHolds(1));
  EXPECT_THAT(notices_, Contains(HasSubstr("cannot resume " + Iteration(3).string())));
  EXPECT_THAT(notices_, Contains(HasSubstr("cannot resume " + Iteration(2).string())));
}

TEST_F(DamagedCheckpointTest, DoesNotCountAmongThoseThatARunKeeps) {
  Put(Iteration(3) / "__0_0.distcp", "no archive");
  auto sessions = SmallSessions::Create(*storage_,
                                        {{"load", kRoot.string()},
                                         {"save", kRoot.string()},
                                         {"keep_checkpoints", 2},
                                         {"global_batch_size", kRanks}},
                                        kRanks);
  ASSERT_THAT(sessions, IsOk());
  ASSERT_THAT(sessions->Run([&](RankSession& session, HostGroup&) -> Status {
    CKPT_RETURN_IF_ERROR(session.Start().status());
    return SaveState(session, 4, 4);
  }),
              IsOk());
  EXPECT_THAT(megatron::ListIterations(*storage_, kRoot),
              testing::IsOkAndHolds(::testing::ElementsAre(2, 3, 4)));
}

TEST_F(DamagedCheckpointTest, LooksAtTheIterationsThatAreThereWhateverTheTrackerSays) {
  for (const char* tracker : {"1", "77", "", "junk"}) {
    Put(kRoot / std::string(megatron::kTrackerName), tracker);
    EXPECT_THAT(GoOn(), testing::IsOkAndHolds(3)) << tracker;
  }
  ASSERT_THAT(storage_->RemoveAll(kRoot / std::string(megatron::kTrackerName)), IsOk());
  EXPECT_THAT(GoOn(), testing::IsOkAndHolds(3));
}

// Data and metadata: the settings of the run can be read only of the first kind.
TEST_F(DamagedCheckpointTest, FailsNamingEachWhenAllAreDamaged) {
  for (const char* file : {"__0_0.distcp", ".metadata", "ckptkit.json"}) {
    SCOPED_TRACE(file);
    std::vector<std::string> whole;
    for (const std::int64_t iteration : {1, 2, 3}) {
      const auto content = ReadSmallFile(*storage_, Iteration(iteration) / file, 1 << 20);
      ASSERT_THAT(content, IsOk());
      whole.push_back(*content);
      std::string damaged = *content;
      damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
      Put(Iteration(iteration) / file, damaged);
    }
    const Result<std::int64_t> went_on = GoOn();
    ASSERT_FALSE(went_on.ok());
    for (const std::int64_t iteration : {1, 2, 3}) {
      EXPECT_THAT(went_on.status().ToString(), HasSubstr(Iteration(iteration).string()));
      Put(Iteration(iteration) / file, whole[static_cast<std::size_t>(iteration - 1)]);
    }
  }
}

// The only checkpoints are gone: that is not a run that has not begun.
TEST_F(DamagedCheckpointTest, FailsWhenTheTrackerNamesWhatIsNotThere) {
  for (const std::int64_t iteration : {1, 2, 3}) {
    ASSERT_THAT(storage_->RemoveAll(Iteration(iteration)), IsOk());
  }
  EXPECT_THAT(GoOn(), FailsWith(ErrorKind::kNotFound));
}

TEST_F(DamagedCheckpointTest, StartsANewRunOnlyWhereThereWasNoCheckpoint) {
  const auto goes_on = [&](const Path& root) -> Result<bool> {
    layout::Configuration settings = testing::TinySettings();
    settings["load"] = root.string();
    settings["save"] = root.string();
    CKPT_ASSIGN_OR_RETURN(const SmallSessions sessions,
                          SmallSessions::Create(*storage_, settings, 1));
    return sessions.run().goes_on();
  };
  EXPECT_THAT(goes_on("/runs/none"), testing::IsOkAndHolds(false));
  ASSERT_THAT(storage_->MakeDirectories("/runs/empty"), IsOk());
  EXPECT_THAT(goes_on("/runs/empty"), testing::IsOkAndHolds(false));
  // The first save was interrupted.
  ASSERT_THAT(storage_->MakeDirectories("/runs/first/iter_0000001.ckptkit-partial"), IsOk());
  ASSERT_THAT(
      WriteSmallFile(*storage_, "/runs/first/iter_0000001.ckptkit-partial/__0_0.distcp", {}),
      IsOk());
  EXPECT_THAT(goes_on("/runs/first"), testing::IsOkAndHolds(false));
  // Something else is there.
  ASSERT_THAT(WriteSmallFile(*storage_, "/runs/first/model.bin", AsBytes("?")), IsOk());
  EXPECT_FALSE(goes_on("/runs/first").ok());
}

// The run saves behind the damaged one, and does not lose what it saved for it.
TEST_F(DamagedCheckpointTest, IsNotKeptInsteadOfWhatIsSavedAfterGoingBack) {
  Put(Iteration(3) / ".metadata", "no pickle");
  auto sessions = SmallSessions::Create(
      *storage_, {{"load", kRoot.string()}, {"save", kRoot.string()}, {"keep_checkpoints", 1}}, 2);
  ASSERT_THAT(sessions, IsOk());
  ASSERT_THAT(sessions->Run([&](RankSession& session, HostGroup&) -> Status {
    CKPT_ASSIGN_OR_RETURN(const RunProgress progress, session.Start());
    EXPECT_EQ(progress.iteration, 2);
    return SaveState(session, 2, 2);
  }),
              IsOk());
  EXPECT_THAT(GoOn(), testing::IsOkAndHolds(2));
}

}  // namespace
}  // namespace ckpt::train
