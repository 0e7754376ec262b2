// Ranks that load what other ranks saved: each byte is read once, whoever needs it, and damage that
// one rank meets is an error of all. Under mpirun the ranks are processes; otherwise they are
// threads, which share the opened checkpoint or have one each, as processes do.
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/posix_storage.h"
#include "core/manifest/manifest.h"
#include "formats/megatron/root.h"
#include "tests/reliability/small_model.h"
#include "tests/testing/counting_storage.h"
#include "tests/testing/matchers.h"
#include "tests/testing/process_ranks.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/run/small_session.h"
#include "trainer/comm/agreement.h"
#include "trainer/comm/thread_comm.h"

namespace ckpt::testing {
namespace {

using train::RankSession;
using trainer::HostGroup;

// Large tensors, as those of real models are beside the headers of their items: 50 MB.
layout::Configuration LargeTensors() {
  return With(
      TinySettings(),
      {{"hidden_size", 128}, {"ffn_hidden_size", 192}, {"kv_channels", 64}, {"vocab_size", 16384}});
}

struct Case {
  int ranks = 0;
  bool shares = false;  // what one of them opened
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.ranks << (c.shares ? " that share" : " that open");
}

class LoadTogetherTest : public ::testing::TestWithParam<Case> {
 protected:
  using Body = std::function<Status(HostGroup& world)>;

  // A run's ranks, in as many processes as there are.
  static Status OnRanks(const Body& body) {
    return process_ranks != nullptr ? body(*process_ranks)
                                    : trainer::RunRanks(GetParam().ranks, body);
  }

  // Where two ranks have saved state number 1 of a run of `settings`. Every rank calls it.
  Result<Path> Save(HostGroup& world, const layout::Configuration& settings) {
    Status saved;
    std::string root;
    if (world.rank() == 0) {
      directory_.emplace();
      root = (directory_->path() / "run").string();
      auto sessions = SmallSessions::Create(PosixStorage(), With(settings, {{"save", root}}), 2);
      saved = sessions.ok() ? sessions->Run([](RankSession& session, HostGroup&) {
        return SaveState(session, 1, 1);
      })
                            : sessions.status();
    }
    CKPT_RETURN_IF_ERROR(trainer::AgreeOn(world, saved));
    CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> roots,
                          trainer::ExchangeTexts(world, root));
    return Path(roots.front());
  }

  // A rank's session that loads what lies below `root`, before it starts. `use` gets the storage
  // that the rank alone reads through; nobody counts what a shared checkpoint reads.
  using Use = std::function<Status(RankSession& session, CountingStorage& storage)>;
  Status Load(HostGroup& world, const Path& root, const Use& use) {
    const layout::Configuration settings = {{"load", root.string()},
                                            {"global_batch_size", GetParam().ranks}};
    if (GetParam().shares) {
      // Made by whoever comes first; the others wait.
      std::call_once(shared_once_, [&] {
        shared_storage_.emplace(PosixStorage());
        shared_.emplace(SmallSessions::Create(*shared_storage_, settings, GetParam().ranks));
      });
      CKPT_RETURN_IF_ERROR(shared_->status());
      return (**shared_).RunAsRank(
          world, [&](RankSession& session, HostGroup&) { return use(session, *shared_storage_); });
    }
    CountingStorage storage(PosixStorage());
    CKPT_ASSIGN_OR_RETURN(SmallSessions sessions,
                          SmallSessions::Create(storage, settings, GetParam().ranks));
    return sessions.RunAsRank(
        world, [&](RankSession& session, HostGroup&) { return use(session, storage); });
  }

  // The same for weights alone, which each rank opens for itself.
  static Status Initialize(HostGroup& world, const Path& model, const Use& use) {
    CountingStorage storage(PosixStorage());
    CKPT_ASSIGN_OR_RETURN(SmallSessions sessions,
                          SmallSessions::Create(storage,
                                                {{"init", "hf:" + model.string()},
                                                 {"seq_length", 4},
                                                 {"train_iters", 1},
                                                 {"global_batch_size", GetParam().ranks}},
                                                GetParam().ranks));
    return sessions.RunAsRank(
        world, [&](RankSession& session, HostGroup&) { return use(session, storage); });
  }

 private:
  std::optional<TempDir> directory_;  // of rank 0
  std::once_flag shared_once_;
  std::optional<CountingStorage> shared_storage_;
  std::optional<Result<SmallSessions>> shared_;
};

Result<std::uint64_t> Sum(HostGroup& world, std::uint64_t mine) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                        trainer::ExchangeTexts(world, std::to_string(mine)));
  std::uint64_t sum = 0;
  for (const std::string& text : all) sum += std::stoull(text);
  return sum;
}

Result<std::uint64_t> BytesBelow(const Path& directory) {
  std::uint64_t bytes = 0;
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, PosixStorage().List(directory));
  for (const DirectoryEntry& entry : entries) {
    CKPT_ASSIGN_OR_RETURN(const auto file, PosixStorage().Open(directory / entry.name));
    bytes += file->size_bytes();
  }
  return bytes;
}

constexpr std::uint64_t kAt = 12'345'678;

// Bit 3 of byte kAt. Every rank calls it.
Status FlipBit(HostGroup& world, const Path& path) {
  if (world.rank() == 0) {
    CKPT_ASSIGN_OR_RETURN(const auto file, PosixStorage().Open(path));
    std::byte byte{};
    CKPT_RETURN_IF_ERROR(file->ReadAt(kAt, {&byte, 1}));
    byte ^= std::byte{8};
    CKPT_ASSIGN_OR_RETURN(const auto changed, PosixStorage().OpenForUpdate(path));
    CKPT_RETURN_IF_ERROR(changed->WriteAt(kAt, {&byte, 1}));
  }
  return world.Barrier();
}

// A repository of the weights of LargeTensors in `checkpoint`, with a manifest.
Status ConvertToModel(const Path& checkpoint, const Path& model) {
  constexpr std::string_view kConfig =
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128,
          "intermediate_size": 192, "num_hidden_layers": 1, "num_attention_heads": 2,
          "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 16384, "rms_norm_eps": 1e-5,
          "hidden_act": "silu", "max_position_embeddings": 64, "rope_theta": 10000.0,
          "tie_word_embeddings": false, "torch_dtype": "float32"})";
  const Path assets = model.parent_path() / "assets";
  CKPT_RETURN_IF_ERROR(PosixStorage().MakeDirectories(assets));
  CKPT_RETURN_IF_ERROR(WriteSmallFile(PosixStorage(), assets / "config.json", AsBytes(kConfig)));
  ConvertOptions options = FsdpToHf(checkpoint, model);
  options.model.assets = assets;
  return Convert(PosixStorage(), options).status();
}

// What each process needs to know of the checkpoint before it can load is read by each.
TEST_P(LoadTogetherTest, ReadsEachByteOnce) {
  EXPECT_THAT(
      OnRanks([&](HostGroup& world) -> Status {
        CKPT_ASSIGN_OR_RETURN(const Path root, Save(world, LargeTensors()));
        CKPT_ASSIGN_OR_RETURN(const std::uint64_t state_bytes,
                              BytesBelow(root / megatron::IterationName(1)));
        return Load(world, root, [&](RankSession& session, CountingStorage& storage) -> Status {
          CKPT_RETURN_IF_ERROR(world.Barrier());
          const std::uint64_t opening_bytes = storage.bytes_read();
          CKPT_RETURN_IF_ERROR(world.Barrier());
          CKPT_RETURN_IF_ERROR(session.Start().status());
          CKPT_RETURN_IF_ERROR(CheckState(session.trainer(), 1));
          CKPT_RETURN_IF_ERROR(world.Barrier());
          const bool counts = !GetParam().shares || world.rank() == 0;
          CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes,
                                Sum(world, counts ? storage.bytes_read() - opening_bytes : 0));
          EXPECT_LE(static_cast<double>(bytes), 1.01 * static_cast<double>(state_bytes));
          EXPECT_GE(static_cast<double>(bytes), 0.9 * static_cast<double>(state_bytes));
          return OkStatus();
        });
      }),
      IsOk());
}

// Some rank has the bit in its part, and others have other parts of its block.
TEST_P(LoadTogetherTest, TellsEveryRankOfABitThatIsFlippedInAPartOfOne) {
  EXPECT_THAT(OnRanks([&](HostGroup& world) -> Status {
                CKPT_ASSIGN_OR_RETURN(const Path root, Save(world, LargeTensors()));
                const Path path = root / megatron::IterationName(1) / "__1_0.distcp";
                CKPT_RETURN_IF_ERROR(FlipBit(world, path));
                return Load(world, root, [&](RankSession& session, CountingStorage&) -> Status {
                  const Status status = session.Start().status();
                  EXPECT_THAT(status, FailsWith(ErrorKind::kChecksum)) << "rank " << world.rank();
                  EXPECT_EQ(status.first().message,
                            fmt::format("bit 3 of byte {} is flipped", kAt));
                  EXPECT_THAT(status.first().file, ::testing::StartsWith(path.string()));
                  EXPECT_THAT(status.first().tensor, ::testing::HasSubstr("embed"));
                  EXPECT_NE(status.first().expected, status.first().actual);
                  return world.Barrier();
                });
              }),
              IsOk());
}

TEST_P(LoadTogetherTest, EndsOnEveryRankWhereOneCannotRead) {
  EXPECT_THAT(
      OnRanks([&](HostGroup& world) -> Status {
        CKPT_ASSIGN_OR_RETURN(const Path root, Save(world, LargeTensors()));
        return Load(world, root, [&](RankSession& session, CountingStorage& storage) -> Status {
          if (world.rank() == 1) storage.FailReads(2'000'000);
          const Status status = session.Start().status();
          // The others only hear of it, unless they read through the same storage.
          if (GetParam().shares) {
            EXPECT_THAT(status, ::testing::AnyOf(FailsWith(ErrorKind::kIo),
                                                 FailsWith(ErrorKind::kCancelled)));
          } else {
            EXPECT_THAT(status,
                        FailsWith(world.rank() == 1 ? ErrorKind::kIo : ErrorKind::kCancelled));
          }
          EXPECT_THAT(status.ToString(), ::testing::HasSubstr("unreadable"));
          return world.Barrier();
        });
      }),
      IsOk());
}

// The block with the header of the file is read by each process that opens it.
TEST_P(LoadTogetherTest, ReadsInitialWeightsInTheSameWay) {
  EXPECT_THAT(
      OnRanks([&](HostGroup& world) -> Status {
        CKPT_ASSIGN_OR_RETURN(const Path root, Save(world, LargeTensors()));
        const Path model = root.parent_path() / "model";
        const Path file = model / "model.safetensors";
        CKPT_RETURN_IF_ERROR(trainer::AgreeOn(
            world, world.rank() == 0 ? ConvertToModel(root / megatron::IterationName(1), model)
                                     : OkStatus()));
        const Use count = [&](RankSession& session, CountingStorage& storage) -> Status {
          const std::uint64_t opening_bytes = storage.bytes_read();
          CKPT_RETURN_IF_ERROR(session.Start().status());
          CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes,
                                Sum(world, storage.bytes_read() - opening_bytes));
          CKPT_ASSIGN_OR_RETURN(const auto opened, PosixStorage().Open(file));
          EXPECT_LE(bytes, opened->size_bytes());
          EXPECT_GE(static_cast<double>(bytes), 0.9 * static_cast<double>(opened->size_bytes()));
          return OkStatus();
        };
        CKPT_RETURN_IF_ERROR(Initialize(world, model, count));
        CKPT_RETURN_IF_ERROR(FlipBit(world, file));
        return Initialize(world, model, [&](RankSession& session, CountingStorage&) -> Status {
          const Status status = session.Start().status();
          EXPECT_THAT(status, FailsWith(ErrorKind::kChecksum)) << "rank " << world.rank();
          EXPECT_EQ(status.first().message, fmt::format("bit 3 of byte {} is flipped", kAt));
          return world.Barrier();
        });
      }),
      IsOk());
}

// Hosts may have copies of their own, of which one lacks the manifest.
TEST_P(LoadTogetherTest, RefusesInitialWeightsThatAreProvedOnOneRankAlone) {
  EXPECT_THAT(
      OnRanks([&](HostGroup& world) -> Status {
        CKPT_ASSIGN_OR_RETURN(const Path root, Save(world, LargeTensors()));
        const Path model = root.parent_path() / "model";
        const Path copy = root.parent_path() / "other" / "model";
        const auto make = [&]() -> Status {
          const Path source = root / megatron::IterationName(1);
          CKPT_RETURN_IF_ERROR(ConvertToModel(source, model));
          CKPT_RETURN_IF_ERROR(ConvertToModel(source, copy));
          return PosixStorage().RemoveAll(copy / std::string(kManifestName));
        };
        CKPT_RETURN_IF_ERROR(trainer::AgreeOn(world, world.rank() == 0 ? make() : OkStatus()));
        const Path& own = world.rank() == 1 ? copy : model;
        return Initialize(world, own, [&](RankSession& session, CountingStorage&) -> Status {
          EXPECT_THAT(session.Start().status(), FailsWith(ErrorKind::kValueMismatch))
              << "rank " << world.rank();
          return world.Barrier();
        });
      }),
      IsOk());
}

INSTANTIATE_TEST_SUITE_P(All, LoadTogetherTest,
                         ::testing::Values(Case{2, false}, Case{2, true}, Case{4, false},
                                           Case{8, false}, Case{8, true}),
                         [](const auto& test) {
                           return fmt::format("{}Ranks{}", test.param.ranks,
                                              test.param.shares ? "ShareIt" : "OpenItEach");
                         });

}  // namespace
}  // namespace ckpt::testing
