// What PlanLoad counts is what a rank reads.
#include "trainer/explain/load_plan.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "converters/config/model_settings.h"
#include "converters/families/known_namings.h"
#include "converters/verbs/convert.h"
#include "converters/verbs/weight_reader.h"
#include "core/checkpoint/memory_source.h"
#include "core/io/forwarding_storage.h"
#include "core/io/posix_storage.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"
#include "trainer/mesh/topology.h"
#include "trainer/model/model.h"
#include "trainer/params/param_piece.h"
#include "trainer/step/trained_units.h"

namespace ckpt::train {
namespace {

using testing::FailsWith;
using testing::IsOk;
using trainer::MeshConfig;
using trainer::ParamPiece;
using trainer::TrainConfig;

// Counts what is read of files, and of how many files.
struct Counts {
  std::uint64_t bytes = 0;
  std::uint64_t reads = 0;
  std::set<std::string> files;
};

class CountingFile final : public ReadableFile {
 public:
  CountingFile(std::shared_ptr<const ReadableFile> behind, Counts& counts)
      : behind_(std::move(behind)), counts_(counts) {}
  [[nodiscard]] std::uint64_t size_bytes() const override { return behind_->size_bytes(); }
  [[nodiscard]] const std::string& name() const override { return behind_->name(); }
  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    counts_.bytes += out.size();
    ++counts_.reads;
    counts_.files.insert(behind_->name());
    return behind_->ReadAt(offset, out);
  }
  [[nodiscard]] Result<std::unique_ptr<FileView>> View() const override { return behind_->View(); }

 private:
  std::shared_ptr<const ReadableFile> behind_;
  Counts& counts_;
};

class CountingStorage final : public ForwardingStorage {
 public:
  CountingStorage(Storage& behind, Counts& counts) : ForwardingStorage(behind), counts_(counts) {}
  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, behind().Open(path));
    return std::shared_ptr<const ReadableFile>(
        std::make_shared<CountingFile>(std::move(file), counts_));
  }

 private:
  Counts& counts_;
};

// Reads what a rank loads, with the trainer's own reader.
Status ReadAsRank(const ModelSource& model, const TrainConfig& config, int rank) {
  CKPT_ASSIGN_OR_RETURN(WeightReader reader,
                        WeightReader::Open(model, kTrainerNaming, {}, kLoadBudgetBytes));
  const auto read = [&](const ParamPiece& piece) -> Status {
    for (std::int64_t row = 0; row < piece.rows; row += RowsAtOnce(piece)) {
      const std::int64_t rows = std::min(RowsAtOnce(piece), piece.rows - row);
      std::vector<float> values(static_cast<std::size_t>(rows * piece.row_elems));
      CKPT_RETURN_IF_ERROR(reader.ReadRows(piece.spec->name, piece.row_begin + row, rows, values));
    }
    return OkStatus();
  };
  const trainer::Topology topology(config.mesh, rank);
  const std::vector<trainer::UnitSpec> units = trainer::ListTrainedUnits(config, topology.expert());
  const trainer::ShardPlan plan = trainer::PlanShards(units, topology, config.plan_options());
  for (const trainer::GroupPlan& group : plan.groups) {
    for (const ParamPiece& piece :
         trainer::ListPieces(units[static_cast<std::size_t>(group.unit)], group)) {
      CKPT_RETURN_IF_ERROR(read(piece));
    }
  }
  return OkStatus();
}

Result<TrainConfig> ConfigOf(const ModelSource& model, const MeshConfig& mesh) {
  TrainConfig config;
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration settings, ModelSettings(model.config));
  CKPT_ASSIGN_OR_RETURN(config.model, trainer::ParseModelConfig(settings));
  config.mesh = mesh;
  return config;
}

const std::vector<MeshConfig>& Meshes() {
  using trainer::OuterSharding;
  using trainer::Sharding;
  static const std::vector<MeshConfig> meshes = {
      {.world_size = 1},
      {.world_size = 3},
      {.world_size = 8, .num_instances = 2, .expert_parallel = 4},
      {.world_size = 8, .num_instances = 2, .expert_parallel = 2, .outer = OuterSharding::kOptim},
      {.world_size = 4, .expert_parallel = 2, .sharding = Sharding::kNoShard},
      {.world_size = 4, .sharding = Sharding::kOptim},
      {.world_size = 64, .expert_parallel = 8}};
  return meshes;
}

TEST(LoadPlanTest, CountsWhatEachRankReads) {
  Counts counts;
  CountingStorage storage(PosixStorage(), counts);
  const auto model = OpenModel(storage, testing::GoldenDir() / "hf/qwen3moe-norm-bf16/ckpt", {});
  ASSERT_THAT(model, IsOk());
  for (const MeshConfig& mesh : Meshes()) {
    const auto config = ConfigOf(*model, mesh);
    ASSERT_THAT(config, IsOk());
    const auto loads = PlanLoad(*model, {}, *config, {.threads = 2});
    ASSERT_THAT(loads, IsOk());
    ASSERT_EQ(loads->size(), static_cast<std::size_t>(mesh.world_size));
    for (int rank = 0; rank < mesh.world_size; ++rank) {
      SCOPED_TRACE(fmt::format("rank {} of {}", rank, mesh.world_size));
      const RankLoad& load = (*loads)[static_cast<std::size_t>(rank)];
      counts = {};
      ASSERT_THAT(ReadAsRank(*model, *config, rank), IsOk());
      EXPECT_EQ(load.bytes, counts.bytes);
      EXPECT_EQ(load.reads, counts.reads);
      EXPECT_EQ(load.files, counts.files.size());
      EXPECT_GT(load.peak_memory, kLoadBudgetBytes);
    }
  }
}

TEST(LoadPlanTest, RefusesAModelThatLacksATensor) {
  const auto model =
      OpenModel(PosixStorage(), testing::GoldenDir() / "hf/qwen3moe-norm-bf16/ckpt", {});
  ASSERT_THAT(model, IsOk());
  auto config = ConfigOf(*model, {.world_size = 2});
  ASSERT_THAT(config, IsOk());
  config->model.qk_layernorm = false;
  EXPECT_THAT(PlanLoad(*model, {}, *config, {}), FailsWith(ErrorKind::kUnsupported));
}

// As if the checkpoint had nothing for the tensor of this name.
ModelSource Without(ModelSource model, const std::string& name) {
  const std::vector<layout::ResolvedTensor>& tensors = model.match.layout.tensors;
  const auto found = std::ranges::find(tensors, name, &layout::ResolvedTensor::name);
  EXPECT_NE(found, tensors.end());
  model.match.positions[static_cast<std::size_t>(found - tensors.begin())] =
      layout::SourceMatch::kAbsent;
  return model;
}

constexpr char kEmbedding[] = "model.embed_tokens.weight";

std::uint64_t NeededBytes(const std::vector<RankLoad>& loads) {
  std::uint64_t bytes = 0;
  for (const RankLoad& load : loads) bytes += load.needed_bytes;
  return bytes;
}

// Weights of the model stand for what the optimizer keeps: they have the same names and shapes.
TEST(LoadPlanTest, CountsNoMomentsOfWhatIsFrozenInTheCheckpoint) {
  const auto model =
      OpenModel(PosixStorage(), testing::GoldenDir() / "hf/qwen3moe-norm-bf16/ckpt", {});
  ASSERT_THAT(model, IsOk());
  const GlobalTensor* const embedding = model->source().index().FindTensor(kEmbedding);
  ASSERT_NE(embedding, nullptr);
  const std::vector<ModelSource> of_all(2, *model);
  const std::vector<ModelSource> of_others(2, Without(*model, kEmbedding));
  const auto config = ConfigOf(*model, {.world_size = 4, .expert_parallel = 2});
  ASSERT_THAT(config, IsOk());
  EXPECT_THAT(CountFrozen(*model, of_others, config->model), testing::IsOkAndHolds(1U));
  EXPECT_THAT(CountFrozen(*model, of_all, config->model), testing::IsOkAndHolds(0U));
  EXPECT_THAT(CountFrozen(*model, {}, config->model), testing::IsOkAndHolds(0U));
  for (const bool is_computed : {true, false}) {
    const auto trained = PlanLoad(*model, of_all, *config, {.is_computed = is_computed});
    const auto frozen = PlanLoad(*model, of_others, *config, {.is_computed = is_computed});
    ASSERT_THAT(trained, IsOk());
    ASSERT_THAT(frozen, IsOk());
    EXPECT_EQ(NeededBytes(*trained) - NeededBytes(*frozen),
              2 * NumBytes(embedding->shape, embedding->dtype));
    EXPECT_LT(frozen->front().peak_memory, trained->front().peak_memory);
  }
}

TEST(LoadPlanTest, NamesAMissingParameterOnce) {
  const auto model =
      OpenModel(PosixStorage(), testing::GoldenDir() / "hf/qwen3moe-norm-bf16/ckpt", {});
  ASSERT_THAT(model, IsOk());
  const auto config = ConfigOf(*model, {.world_size = 2});
  ASSERT_THAT(config, IsOk());
  const ModelSource without = Without(*model, kEmbedding);
  for (const auto& [weights, moments] :
       {std::pair(without, std::vector(2, without)),         // nothing is there
        std::pair(without, std::vector(2, *model)),          // the optimizer keeps something for it
        std::pair(*model, std::vector{*model, without})}) {  // and not all
    const auto loads = PlanLoad(weights, moments, *config, {});
    ASSERT_THAT(loads, FailsWith(ErrorKind::kMissing));
    EXPECT_EQ(loads.status().problems().size(), 1U);
    EXPECT_EQ(loads.status().first().tensor, "embedding.word_embeddings.weight");
  }
}

// Tensors of names that nobody knows, of which only the metadata are there.
ModelSource Unknown(const std::map<std::string, Dims>& shapes) {
  IndexBuilder builder;
  const FileId file = builder.AddFile("elsewhere");
  const EncodingId raw = builder.AddEncoding("raw");
  ModelSource model;
  for (const auto& [key, shape] : shapes) {
    builder.AddTensor(key, DType::kUint8, shape);
    builder.AddChunk(WholeBox(shape), file, raw, 0, NumBytes(shape, DType::kUint8));
    model.stored.push_back(
        {.key = key, .position = static_cast<std::uint32_t>(model.stored.size())});
  }
  OpenedCheckpoint checkpoint;
  checkpoint.source = MakePartialSource(builder.Build().value(), {nullptr}).value();
  model.checkpoint = std::make_shared<const OpenedCheckpoint>(std::move(checkpoint));
  return model;
}

TEST(LoadPlanTest, DividesEachTensorOfAnUnknownName) {
  const ModelSource model = Unknown({{"empty", {0, 2}}, {"matrix", {128, 3}}, {"number", {}}});
  TrainConfig config;
  config.mesh.world_size = 2;
  const auto loads = PlanLoad(model, {}, config, {.is_computed = false});
  ASSERT_THAT(loads, IsOk());
  EXPECT_EQ((*loads)[0].bytes, 192U + 1U);
  EXPECT_EQ((*loads)[1].bytes, 192U);
  config.mesh.expert_parallel = 2;
  EXPECT_THAT(PlanLoad(model, {}, config, {.is_computed = false}), FailsWith(ErrorKind::kUsage));
}

TEST(LoadPlanTest, RefusesATensorThatManyRanksCannotCount) {
  const ModelSource model = Unknown({{"huge", {1, std::int64_t{1} << 50}}});
  TrainConfig config;
  EXPECT_THAT(PlanLoad(model, {}, config, {.is_computed = false}), IsOk());
  config.mesh.world_size = 1000;
  EXPECT_THAT(PlanLoad(model, {}, config, {.is_computed = false}), FailsWith(ErrorKind::kResource));
}

// Together the ranks read everything once, whatever divides the checkpoint and the run.
TEST(LoadPlanTest, ShardsNeedEveryElementOnce) {
  const testing::TempDir dir;
  ConvertOptions options;
  options.source = testing::GoldenDir() / "hf/qwen3moe-norm-bf16/ckpt";
  options.target = dir.path() / "core";
  options.to.container = *FindFormat("torch_dist");
  const auto prepared = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(prepared, IsOk());
  ASSERT_THAT(RunConversion(PosixStorage(), *prepared, options), IsOk());
  for (const Path& path : {options.source, options.target}) {
    const auto model = OpenModel(PosixStorage(), path, {});
    ASSERT_THAT(model, IsOk());
    std::uint64_t stored = 0;
    for (const std::uint32_t position : model->match.positions) {
      const GlobalTensor& tensor = model->source().index().tensors()[position];
      stored += NumBytes(tensor.shape, tensor.dtype);
    }
    for (const MeshConfig& mesh :
         {MeshConfig(), {.world_size = 4}, {.world_size = 64, .expert_parallel = 8}}) {
      const auto config = ConfigOf(prepared->model, mesh);
      ASSERT_THAT(config, IsOk());
      for (const bool is_computed : {true, false}) {
        const auto loads = PlanLoad(*model, {}, *config, {.is_computed = is_computed});
        ASSERT_THAT(loads, IsOk());
        std::uint64_t needed = 0;
        std::uint64_t bytes = 0;
        for (const RankLoad& load : *loads) {
          needed += load.needed_bytes;
          bytes += load.bytes;
        }
        EXPECT_EQ(needed, stored) << path;
        EXPECT_GE(bytes, stored) << path;
      }
    }
  }
}

TEST(LoadPlanTest, TheSameForAnyThreads) {
  const auto model =
      OpenModel(PosixStorage(), testing::GoldenDir() / "hf/qwen3moe-norm-bf16/ckpt", {});
  ASSERT_THAT(model, IsOk());
  const auto config = ConfigOf(*model, {.world_size = 64, .expert_parallel = 4});
  ASSERT_THAT(config, IsOk());
  const auto one = PlanLoad(*model, {}, *config, {.threads = 1});
  const auto five = PlanLoad(*model, {}, *config, {.threads = 5});
  ASSERT_THAT(one, IsOk());
  ASSERT_THAT(five, IsOk());
  for (std::size_t rank = 0; rank < one->size(); ++rank) {
    EXPECT_EQ((*one)[rank].bytes, (*five)[rank].bytes);
    EXPECT_EQ((*one)[rank].reads, (*five)[rank].reads);
    EXPECT_EQ((*one)[rank].files, (*five)[rank].files);
    EXPECT_EQ((*one)[rank].peak_memory, (*five)[rank].peak_memory);
  }
}

}  // namespace
}  // namespace ckpt::train
