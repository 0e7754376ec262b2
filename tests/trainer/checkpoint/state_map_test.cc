// Every row of a run's state is staged once, by a rank that holds it, and the ranks stage alike.
#include "trainer/checkpoint/state_map.h"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/tensor/box.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/checkpoint/state_cases.h"
#include "trainer/mesh/topology.h"
#include "trainer/model/model.h"
#include "trainer/params/param_piece.h"
#include "trainer/step/trained_units.h"

namespace ckpt::trainer {
namespace {

using testing::AllStateCases;
using testing::FailsWith;
using testing::IsOk;
using testing::StateCase;
using ::testing::UnorderedElementsAreArray;

struct Piece {
  std::string name;
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;

  friend auto operator<=>(const Piece&, const Piece&) = default;
};

// What a rank holds, as its trainer would lay it out.
std::set<Piece> PiecesOf(const TrainConfig& config, int rank) {
  std::set<Piece> pieces;
  const Topology topology(config.mesh, rank);
  const std::vector<UnitSpec> units = ListTrainedUnits(config, topology.expert());
  const ShardPlan plan = PlanShards(units, topology, config.plan_options());
  for (const GroupPlan& group : plan.groups) {
    for (const ParamPiece& piece : ListPieces(units[static_cast<std::size_t>(group.unit)], group)) {
      pieces.insert({piece.spec->name, piece.row_begin, piece.rows});
    }
  }
  for (const ReplicatedBufferSpec& buffer : ListBuffers(config.model)) {
    pieces.insert({buffer.name, 0, buffer.shape.front()});
  }
  return pieces;
}

// Keys that a map must have, from the model alone: no mesh changes them.
std::vector<std::string> ExpectedKeys(const TrainConfig& config) {
  TrainConfig alone = config;
  alone.mesh = {};
  std::vector<std::string> keys;
  for (const UnitSpec& unit : ListTrainedUnits(alone, 0)) {
    for (const ParamSpec& param : unit.params) {
      keys.push_back(std::string(kWeightsPart) + param.name);
      for (int moment = 0; param.trainable && moment < NumMoments(config.optimizer); ++moment) {
        keys.push_back(MomentPart(moment) + param.name);
      }
    }
  }
  for (const ReplicatedBufferSpec& buffer : ListBuffers(config.model)) {
    keys.push_back(std::string(kWeightsPart) + buffer.name);
  }
  return keys;
}

std::string NameIn(const std::string& key) { return key.substr(key.find('.') + 1); }

// Applies `check` to the map of every case.
template <typename Check>
void ForEveryMap(const Check& check) {
  const std::vector<StateCase> cases = AllStateCases();
  for (const StateCase& c : cases) {
    SCOPED_TRACE(c.name);
    const Result<StateMap> map = MapState(c.config, {});
    ASSERT_THAT(map, IsOk());
    check(c.config, *map);
  }
  EXPECT_GE(cases.size(), 100U);
}

TEST(StateMapTest, StagesEveryRowOfEveryTensorOnce) {
  ForEveryMap([](const TrainConfig& config, const StateMap& map) {
    std::vector<std::string> keys;
    for (const GlobalTensor& tensor : map.index.tensors()) {
      keys.push_back(tensor.key);
      std::vector<Box> boxes;
      for (const Chunk& chunk : map.index.chunks(tensor)) boxes.push_back(map.index.box(chunk));
      const CoverProof proof = ProveCover(tensor.shape, boxes);
      EXPECT_TRUE(proof.exact()) << tensor.key;
      EXPECT_EQ(proof.duplicates, 0U) << tensor.key;
    }
    EXPECT_THAT(keys, UnorderedElementsAreArray(ExpectedKeys(config)));
  });
}

TEST(StateMapTest, LetsOnlyHoldersOfARowStageIt) {
  ForEveryMap([](const TrainConfig& config, const StateMap& map) {
    std::vector<std::set<Piece>> held;
    for (int rank = 0; rank < config.mesh.world_size; ++rank) {
      held.push_back(PiecesOf(config, rank));
    }
    for (const GlobalTensor& tensor : map.index.tensors()) {
      for (const Chunk& chunk : map.index.chunks(tensor)) {
        const Box box = map.index.box(chunk);
        EXPECT_TRUE(
            held[chunk.file].contains({NameIn(tensor.key), box.offsets.front(), box.sizes.front()}))
            << tensor.key << " " << FormatBox(box) << " on rank " << chunk.file;
      }
    }
  });
}

TEST(StateMapTest, FillsEachRanksMemoryWithoutGaps) {
  ForEveryMap([](const TrainConfig& config, const StateMap& map) {
    ASSERT_EQ(map.index.files().size(), static_cast<std::size_t>(config.mesh.world_size));
    std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> extents(
        map.index.files().size());
    for (const Chunk& chunk : map.index.chunks()) {
      extents[chunk.file].emplace_back(chunk.offset_bytes, chunk.size_bytes);
    }
    for (std::size_t rank = 0; rank < extents.size(); ++rank) {
      std::ranges::sort(extents[rank]);
      std::uint64_t end = 0;
      for (const auto& [offset, size] : extents[rank]) {
        EXPECT_EQ(offset, end);
        end += size;
      }
      EXPECT_EQ(map.staged_bytes[rank], end);
    }
  });
}

// Two ranks that hold the same pieces choose between themselves. When the fuller one got its last
// piece, it had no more than the other: so they differ by one piece at most, the largest.
TEST(StateMapTest, DividesWhatReplicasHoldUpToOnePiece) {
  int compared = 0;
  ForEveryMap([&](const TrainConfig& config, const StateMap& map) {
    std::uint64_t largest = 0;
    for (const Chunk& chunk : map.index.chunks()) largest = std::max(largest, chunk.size_bytes);
    std::map<std::set<Piece>, std::pair<std::uint64_t, std::uint64_t>> least_and_most;
    for (int rank = 0; rank < config.mesh.world_size; ++rank) {
      const std::uint64_t staged = map.staged_bytes[static_cast<std::size_t>(rank)];
      const auto [twin, is_first] =
          least_and_most.try_emplace(PiecesOf(config, rank), staged, staged);
      auto& [least, most] = twin->second;
      least = std::min(least, staged);
      most = std::max(most, staged);
      compared += is_first ? 0 : 1;
    }
    for (const auto& [pieces, bytes] : least_and_most) {
      EXPECT_LE(bytes.second - bytes.first, largest);
    }
  });
  EXPECT_GE(compared, 100);
}

// Without replicas the shards decide, which are equal but for padding between tensors. Where every
// rank holds everything, a rank stages its share of the whole up to one piece.
TEST(StateMapTest, GivesEveryRankOfReplicasItsShare) {
  TrainConfig config = testing::SmallRun(testing::SmallDeepSeek(), 8);
  config.mesh = {.world_size = 8, .sharding = Sharding::kNoShard};
  const Result<StateMap> map = MapState(config, {});
  ASSERT_THAT(map, IsOk());
  std::uint64_t total = 0;
  std::uint64_t largest = 0;
  for (const Chunk& chunk : map->index.chunks()) {
    total += chunk.size_bytes;
    largest = std::max(largest, chunk.size_bytes);
  }
  ASSERT_LT(largest, total / 16);  // else the bound says nothing
  for (const std::uint64_t staged : map->staged_bytes) {
    EXPECT_LE(staged, total / 8 + largest);
    EXPECT_GE(staged + largest, total / 8);
  }
}

TEST(StateMapTest, IsTheSameWhoeverAsks) {
  for (const StateCase& c : AllStateCases()) {
    const Result<StateMap> one = MapState(c.config, {});
    const Result<StateMap> other = MapState(c.config, {});
    ASSERT_THAT(one, IsOk());
    ASSERT_THAT(other, IsOk());
    EXPECT_EQ(one->staged_bytes, other->staged_bytes);
    ASSERT_EQ(one->index.chunks().size(), other->index.chunks().size());
    for (std::size_t i = 0; i < one->index.chunks().size(); ++i) {
      const Chunk& a = one->index.chunks()[i];
      const Chunk& b = other->index.chunks()[i];
      EXPECT_EQ(one->index.box(a), other->index.box(b));
      EXPECT_EQ(std::pair(a.file, a.offset_bytes), std::pair(b.file, b.offset_bytes));
    }
  }
}

// The map by its definition: every rank's pieces, one after another in order of names and rows,
// each to the holder that stages least, of equal ones the lowest.
std::vector<std::pair<std::string, int>> StagedBy(const TrainConfig& config) {
  std::map<Piece, std::vector<int>> holders;
  std::set<std::string> trained;
  std::map<std::string, std::uint64_t> row_bytes;
  for (int rank = 0; rank < config.mesh.world_size; ++rank) {
    for (const Piece& piece : PiecesOf(config, rank)) holders[piece].push_back(rank);
    for (const UnitSpec& unit : ListTrainedUnits(config, Topology(config.mesh, rank).expert())) {
      for (const ParamSpec& param : unit.params) {
        if (param.trainable) trained.insert(param.name);
        row_bytes[param.name] =
            static_cast<std::uint64_t>(NumElements(param.shape) / param.shape.front()) * 4;
      }
    }
  }
  for (const ReplicatedBufferSpec& buffer : ListBuffers(config.model)) row_bytes[buffer.name] = 4;
  std::vector<std::pair<std::string, int>> staged_by;
  std::vector<std::uint64_t> staged(static_cast<std::size_t>(config.mesh.world_size));
  const auto stage = [&](std::string_view part, const Piece& piece) {
    const int rank = *std::ranges::min_element(holders[piece], {}, [&](int candidate) {
      return std::pair(staged[static_cast<std::size_t>(candidate)], candidate);
    });
    staged[static_cast<std::size_t>(rank)] +=
        static_cast<std::uint64_t>(piece.rows) * row_bytes[piece.name];
    staged_by.emplace_back(std::string(part) + piece.name + "@" + std::to_string(piece.row_begin),
                           rank);
  };
  for (const auto& [piece, ranks] : holders) stage(kWeightsPart, piece);
  for (int moment = 0; moment < NumMoments(config.optimizer); ++moment) {
    for (const auto& [piece, ranks] : holders) {
      if (trained.contains(piece.name)) stage(MomentPart(moment), piece);
    }
  }
  return staged_by;
}

TEST(StateMapTest, IsTheOneThatEveryRanksPiecesGive) {
  ForEveryMap([](const TrainConfig& config, const StateMap& map) {
    std::vector<std::pair<std::string, int>> have;
    for (const GlobalTensor& tensor : map.index.tensors()) {
      for (const Chunk& chunk : map.index.chunks(tensor)) {
        const std::int64_t row = map.index.box(chunk).offsets.front();
        have.emplace_back(tensor.key + "@" + std::to_string(row), static_cast<int>(chunk.file));
      }
    }
    std::vector<std::pair<std::string, int>> want = StagedBy(config);
    std::ranges::sort(have);
    std::ranges::sort(want);
    EXPECT_EQ(have, want);
  });
}

// Where every rank holds everything, the map has as many pieces on 4,096 ranks as on 4: a rank
// costs no more than its name and its place in a queue. (Planning for each took a thousand times as
// long.)
TEST(StateMapTest, CostsWhatItHoldsNotOnceARank) {
  const auto seconds_of = [](int ranks) {
    TrainConfig config = testing::SmallRun(testing::SmallDeepSeek(), ranks);
    config.mesh = {.world_size = ranks, .sharding = Sharding::kNoShard};
    double least = 1e9;
    for (int attempt = 0; attempt < 3; ++attempt) {
      const std::clock_t start = std::clock();
      EXPECT_THAT(MapState(config, {}), IsOk());
      least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    }
    return least;
  };
  EXPECT_LT(seconds_of(4096), 100 * seconds_of(4));
}

TEST(StateMapTest, GivesTensorsOfTheRunToRankZero) {
  TrainConfig config = testing::SmallRun(testing::SmallMoe(), 4);
  config.mesh.world_size = 4;
  const std::vector<MemoryTensor> run_tensors = {
      {.key = "rng", .dtype = DType::kUint8, .shape = {5}, .values = Bytes(5)}};
  const Result<StateMap> map = MapState(config, run_tensors);
  ASSERT_THAT(map, IsOk());
  const GlobalTensor* const tensor = map->index.FindTensor(std::string(kRunPart) + "rng");
  ASSERT_NE(tensor, nullptr);
  ASSERT_EQ(map->index.chunks(*tensor).size(), 1U);
  EXPECT_EQ(map->index.chunks(*tensor).front().file, 0U);
  EXPECT_EQ(map->index.chunks(*tensor).front().size_bytes, 5U);
  const std::vector<MemoryTensor> twice = {run_tensors.front(), run_tensors.front()};
  EXPECT_THAT(MapState(config, twice), FailsWith(ErrorKind::kBadMetadata));
}

}  // namespace
}  // namespace ckpt::trainer
