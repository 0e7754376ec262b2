// What is staged is what the trainers hold, and its sum is that of the state, not of the mesh.
#include "trainer/checkpoint/staging.h"

#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/tensor/box.h"
#include "tests/testing/forwarding_device.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/checkpoint/state_cases.h"
#include "tests/trainer/checkpoint/state_pattern.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops.h"
#include "trainer/step/trained_units.h"

namespace ckpt::trainer {
namespace {

using testing::AllStateCases;
using testing::FailsWith;
using testing::IsOk;
using testing::Pattern;
using testing::SetState;
using testing::StateCase;

// Counts what is copied to the host.
class CountingDevice final : public testing::ForwardingDevice {
 public:
  CountingDevice() : ForwardingDevice(MakeHostDevice({})) {}

  void CopyToHost(Queue& queue, const Tensor& from, void* host) override {
    copied_bytes_ += from.size_bytes();
    ForwardingDevice::CopyToHost(queue, from, host);
  }

  // Since the last call.
  std::uint64_t TakeCopiedBytes() { return std::exchange(copied_bytes_, 0); }

 private:
  std::uint64_t copied_bytes_ = 0;
};

// Runs `body` on every rank with its trainer, which has no weights yet.
Status RunTrainers(const TrainConfig& config,
                   const std::function<Status(RankTrainer&, HostGroup&)>& body) {
  return RunRanks(config.mesh.world_size, [&](HostGroup& world) -> Status {
    const std::unique_ptr<Device> device = MakeHostDevice({});
    const std::unique_ptr<Ops> ops = MakeHostOps({.threads = 1});
    CKPT_ASSIGN_OR_RETURN(
        const std::unique_ptr<RankTrainer> trainer,
        RankTrainer::Create(config, world, {.device = device.get(), .ops = ops.get()}));
    return body(*trainer, world);
  });
}

Result<Staging> Stage(RankTrainer& trainer, const StateMap& map, int rank) {
  CKPT_ASSIGN_OR_RETURN(Staging staging, Staging::Create(map, rank, {}, trainer.device()));
  CKPT_RETURN_IF_ERROR(staging.Fill(trainer));
  return staging;
}

// The elements of every chunk of `rank`, compared with those of state number `state`.
Status CompareWithState(const Staging& staging, int rank, std::uint64_t state) {
  const CheckpointIndex& index = staging.source()->index();
  for (const GlobalTensor& tensor : index.tensors()) {
    const std::size_t dot = tensor.key.find('.') + 1;
    const Pattern pattern(state, tensor.key.substr(0, dot), tensor.key.substr(dot));
    for (const Chunk& chunk : index.chunks(tensor)) {
      const Result<StoredArray> array = staging.source()->Locate(tensor, chunk);
      if (chunk.file != static_cast<FileId>(rank)) {
        EXPECT_THAT(array, FailsWith(ErrorKind::kMissingFile));
        continue;
      }
      CKPT_RETURN_IF_ERROR(array.status());
      const Box box = index.box(chunk);
      const std::int64_t row_elems = NumElements(tensor.shape) / tensor.shape.front();
      std::vector<float> rows(static_cast<std::size_t>(NumElements(box.sizes)));
      CKPT_RETURN_IF_ERROR(
          array->file->ReadAt(array->offset_bytes, std::as_writable_bytes(std::span(rows))));
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::int64_t element = box.offsets.front() * row_elems + static_cast<std::int64_t>(i);
        if (std::bit_cast<std::uint32_t>(rows[i]) ==
            std::bit_cast<std::uint32_t>(pattern.At(element))) {
          continue;
        }
        return Error(ErrorKind::kValueMismatch, "another element is staged").Tensor(tensor.key);
      }
    }
  }
  return OkStatus();
}

TEST(StagingTest, HoldsTheRowsOfItsRankAndTheirSumIsTheSameOnEveryMesh) {
  constexpr std::uint64_t kState = 3;
  std::map<bool, Hash128> sums;  // with experts, and without
  for (const StateCase& c : AllStateCases()) {
    SCOPED_TRACE(c.name);
    const Result<StateMap> map = MapState(c.config, {});
    ASSERT_THAT(map, IsOk());
    std::mutex mutex;
    Hash128 sum;
    const Status status = RunTrainers(c.config, [&](RankTrainer& trainer, HostGroup& world) {
      CKPT_RETURN_IF_ERROR(SetState(trainer, kState));
      CKPT_ASSIGN_OR_RETURN(const Staging staging, Stage(trainer, *map, world.rank()));
      CKPT_ASSIGN_OR_RETURN(const Hash128 mine, staging.SumRows(/*threads=*/3));
      const std::lock_guard lock(mutex);
      sum = sum + mine;
      return CompareWithState(staging, world.rank(), kState);
    });
    ASSERT_THAT(status, IsOk());
    const auto [expected, is_first] = sums.try_emplace(c.config.model.moe.has_value(), sum);
    EXPECT_EQ(sum, expected->second);
  }
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_NE(sums[false], sums[true]);
}

// Of each rank, the bytes that one Fill copied from its device.
std::vector<std::uint64_t> CopiedBytes(const TrainConfig& config, const StateMap& map) {
  std::vector<std::uint64_t> copied(static_cast<std::size_t>(config.mesh.world_size));
  const Status status = RunRanks(config.mesh.world_size, [&](HostGroup& world) -> Status {
    CountingDevice device;
    const std::unique_ptr<Ops> ops = MakeHostOps({.threads = 1});
    CKPT_ASSIGN_OR_RETURN(
        const std::unique_ptr<RankTrainer> trainer,
        RankTrainer::Create(config, world, {.device = &device, .ops = ops.get()}));
    CKPT_RETURN_IF_ERROR(SetState(*trainer, 1));
    device.TakeCopiedBytes();
    CKPT_RETURN_IF_ERROR(Stage(*trainer, map, world.rank()).status());
    copied[static_cast<std::size_t>(world.rank())] = device.TakeCopiedBytes();
    return OkStatus();
  });
  EXPECT_THAT(status, IsOk());
  return copied;
}

TEST(StagingTest, CopiesWhatItsRankWritesAndNothingElse) {
  for (const StateCase& c : AllStateCases()) {
    SCOPED_TRACE(c.name);
    const Result<StateMap> map = MapState(c.config, {});
    ASSERT_THAT(map, IsOk());
    EXPECT_EQ(CopiedBytes(c.config, *map), map->staged_bytes);
  }
}

// Every rank of DDP holds the whole state, and every instance of HSDP.
TEST(StagingTest, CopiesOneStateHoweverManyReplicasThereAre) {
  TrainConfig config = testing::SmallRun(testing::SmallDense(), 8);
  constexpr std::uint64_t kArrays = 3;  // weights, exp_avg, exp_avg_sq
  std::uint64_t state_bytes = 0;
  for (const UnitSpec& unit : ListTrainedUnits(config, 0)) {
    for (const ParamSpec& param : unit.params) {
      state_bytes += static_cast<std::uint64_t>(NumElements(param.shape)) * kArrays * sizeof(float);
    }
  }
  for (const int ranks : {1, 2, 4, 8}) {
    for (const int instances : {1, 2}) {
      for (const Sharding sharding : {Sharding::kNoShard, Sharding::kOptimGradsParams}) {
        config.mesh = {.world_size = ranks, .num_instances = instances, .sharding = sharding};
        if (!ValidateMesh(config.mesh, 0).ok()) continue;
        SCOPED_TRACE(::testing::Message()
                     << ShardingName(sharding) << ", " << instances << " of " << ranks);
        const Result<StateMap> map = MapState(config, {});
        ASSERT_THAT(map, IsOk());
        const std::vector<std::uint64_t> copied = CopiedBytes(config, *map);
        EXPECT_EQ(std::accumulate(copied.begin(), copied.end(), std::uint64_t{0}), state_bytes);
      }
    }
  }
}

TEST(StagingTest, FollowsTheStateFromFillToFill) {
  TrainConfig config = testing::SmallRun(testing::SmallMoe(), 2);
  config.mesh.world_size = 2;
  const Result<StateMap> map = MapState(config, {});
  ASSERT_THAT(map, IsOk());
  EXPECT_THAT(RunTrainers(config,
                          [&](RankTrainer& trainer, HostGroup& world) -> Status {
                            CKPT_ASSIGN_OR_RETURN(
                                Staging staging,
                                Staging::Create(*map, world.rank(), {}, trainer.device()));
                            for (const std::uint64_t state : {1U, 2U}) {
                              CKPT_RETURN_IF_ERROR(SetState(trainer, state));
                              CKPT_RETURN_IF_ERROR(staging.Fill(trainer));
                              CKPT_RETURN_IF_ERROR(CompareWithState(staging, world.rank(), state));
                            }
                            return OkStatus();
                          }),
              IsOk());
}

// The sum of one rank's state, of which `change` changed some elements.
class SumTest : public ::testing::Test {
 protected:
  using Change = std::function<void(const std::string& key, std::span<float> values)>;

  SumTest() {
    config_.model.hidden_size = 8;
    config_.model.vocab_size = config_.model.padded_vocab_size = 12;
  }

  // One sum for each change.
  std::vector<Hash128> SumsOf(const std::vector<Change>& changes) {
    std::vector<Hash128> sums;
    const Result<StateMap> map = MapState(config_, {});
    EXPECT_THAT(map, IsOk());
    const Status status = RunTrainers(config_, [&](RankTrainer& trainer, HostGroup&) -> Status {
      CKPT_ASSIGN_OR_RETURN(Staging staging, Staging::Create(*map, 0, {}, trainer.device()));
      for (const Change& change : changes) {
        const auto fill = [&](const std::string& part) {
          return [&change, part](const ParamSpec& spec, std::int64_t row_begin, std::int64_t rows,
                                 std::span<float> values) {
            CKPT_RETURN_IF_ERROR(testing::PatternRows(1, part)(spec, row_begin, rows, values));
            change(part + spec.name, values);
            return OkStatus();
          };
        };
        CKPT_RETURN_IF_ERROR(trainer.SetWeights(fill(std::string(kWeightsPart))));
        for (int m = 0; m < 2; ++m) {
          CKPT_RETURN_IF_ERROR(trainer.SetMoment(m, fill(MomentPart(m))));
        }
        CKPT_RETURN_IF_ERROR(staging.Fill(trainer));
        CKPT_ASSIGN_OR_RETURN(sums.emplace_back(), staging.SumRows(/*threads=*/1));
      }
      return OkStatus();
    });
    EXPECT_THAT(status, IsOk());
    EXPECT_EQ(sums.size(), changes.size());
    return sums;
  }

  // Flips one bit of `element` of `key`.
  static Change Flip(std::string key, std::size_t element, int bit) {
    return [key = std::move(key), element, bit](const std::string& at, std::span<float> values) {
      if (at != key) return;
      values[element] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[element]) ^
                                             (std::uint32_t{1} << bit));
    };
  }

  static void Nothing(const std::string& /*key*/, std::span<float> /*values*/) {}

  TrainConfig config_ = testing::SmallRun(testing::SmallDense(), 1);
};

TEST_F(SumTest, ChangesWithAnyBit) {
  const Result<StateMap> map = MapState(config_, {});
  ASSERT_THAT(map, IsOk());
  std::vector<Change> changes = {Nothing};
  std::mt19937_64 rng(7);
  for (const GlobalTensor& tensor : map->index.tensors()) {
    const auto elems = static_cast<std::size_t>(NumElements(tensor.shape));
    for (int bit = 0; bit < 32; ++bit) changes.push_back(Flip(tensor.key, rng() % elems, bit));
  }
  const std::vector<Hash128> sums = SumsOf(changes);
  for (std::size_t i = 1; i < sums.size(); ++i) EXPECT_NE(sums[i], sums[0]) << "change " << i;
  EXPECT_GE(sums.size(), 1000U);
}

TEST_F(SumTest, ChangesWithTheOrderOfRows) {
  const Change swap_rows = [](const std::string& key, std::span<float> values) {
    if (key != "weights.embedding.word_embeddings.weight") return;
    ASSERT_EQ(values.size(), 12U * 8U);
    std::swap_ranges(values.begin(), values.begin() + 8, values.begin() + 16);
  };
  const std::vector<Hash128> sums = SumsOf({Nothing, swap_rows});
  EXPECT_NE(sums[0], sums[1]);
}

TEST_F(SumTest, ChangesWhenTwoTensorsChangePlaces) {
  const std::string one = "weights.decoder.layers.0.self_attention.linear_proj.weight";
  const std::string other = "weights.decoder.layers.1.self_attention.linear_proj.weight";
  bool seen = false;
  const Change change_places = [&](const std::string& key, std::span<float> values) {
    if (key != one && key != other) return;
    seen = true;
    const std::string& source = key == one ? other : one;
    const Pattern pattern(1, kWeightsPart, source.substr(kWeightsPart.size()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = pattern.At(static_cast<std::int64_t>(i));
    }
  };
  const std::vector<Hash128> sums = SumsOf({Nothing, change_places});
  EXPECT_TRUE(seen);
  EXPECT_NE(sums[0], sums[1]);
}

TEST_F(SumTest, TellsMomentsFromWeights) {
  const Change as_weights = [](const std::string& key, std::span<float> values) {
    if (!key.starts_with("moment0.")) return;
    const Pattern pattern(1, kWeightsPart, key.substr(8));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = pattern.At(static_cast<std::int64_t>(i));
    }
  };
  const Change exchanged = [](const std::string& key, std::span<float> values) {
    const bool is_weight = key.starts_with(kWeightsPart);
    if (!is_weight && !key.starts_with("moment0.")) return;
    const std::string name = key.substr(key.find('.') + 1);
    const Pattern pattern(1, is_weight ? MomentPart(0) : std::string(kWeightsPart), name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = pattern.At(static_cast<std::int64_t>(i));
    }
  };
  const std::vector<Hash128> sums = SumsOf({Nothing, as_weights, exchanged});
  EXPECT_NE(sums[0], sums[1]);
  EXPECT_NE(sums[0], sums[2]);
}

TEST(StagingTest, RefusesATrainerThatDoesNotOwnWhatTheMapSays) {
  TrainConfig config = testing::SmallRun(testing::SmallMoe(), 2);
  config.mesh.world_size = 2;
  const Result<StateMap> map = MapState(config, {});
  ASSERT_THAT(map, IsOk());
  EXPECT_THAT(RunTrainers(config,
                          [&](RankTrainer& trainer, HostGroup& world) -> Status {
                            CKPT_RETURN_IF_ERROR(SetState(trainer, 1));
                            EXPECT_THAT(Stage(trainer, *map, 1 - world.rank()),
                                        FailsWith(ErrorKind::kInternal));
                            return OkStatus();
                          }),
              IsOk());
}

}  // namespace
}  // namespace ckpt::trainer
