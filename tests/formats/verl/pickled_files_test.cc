// Files of ranks that hold what verl's usual setting does not save: FSDP1's ShardedTensor, and
// optimizers whose parameters cannot be named.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/checkpoint/validate.h"
#include "core/io/memory_storage.h"
#include "formats/pickle/writer.h"
#include "formats/torch_save/torch_item.h"
#include "formats/verl/internal/source.h"
#include "tests/testing/matchers.h"

namespace ckpt::verl {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using pickle::PickleWriter;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::string_view kSharded = "torch.distributed._shard.sharded_tensor.api";

// A file as torch.save writes it, of values that are float32.
class PickledFile {
 public:
  void Tensor(const Dims& shape) {
    const std::int64_t elements = NumElements(shape);
    pickle_.Global("torch._utils", "_rebuild_tensor_v2").BeginTuple();
    pickle_.BeginTuple().Text("storage").Global("torch", "FloatStorage");
    pickle_.Text(std::to_string(storages_.size())).Text("cpu").Int(elements);
    pickle_.EndTuple().PersistentId().Int(0).IntTuple(shape).IntTuple(ContiguousStrides(shape));
    pickle_.Bool(false).Global("collections", "OrderedDict").EmptyTuple().Reduce();
    pickle_.EndTuple().Reduce();
    storages_.emplace_back(static_cast<std::size_t>(elements) * 4, std::byte{1});
  }

  // Rows of a tensor of two columns, from `row` on.
  struct Shard {
    std::int64_t row = 0;
    std::int64_t rows = 0;
  };
  void ShardedTensor(std::int64_t rows, const std::vector<Shard>& shards) {
    BeginWrapper(kSharded, "ShardedTensor", {rows, 2});
    pickle_.BeginTuple().BeginList();
    for (const Shard& shard : shards) AddShard(shard);
    pickle_.EndList().None();
    // A class inside a class.
    pickle_.Global("builtins", "getattr").BeginTuple().Global(kSharded, "ShardedTensor");
    pickle_.Text("ProcessGroupState").EndTuple().Reduce().EmptyTuple().NewObject();
    pickle_.BeginDict().Text("local_rank").Int(0).EndDict().Build();
    pickle_.EndTuple().EndTuple().Reduce();
  }

  // The rows that a rank has of a tensor of two columns: a DTensor.
  void Rows(std::int64_t all_rows, std::int64_t rows, std::int64_t rank) {
    DistributedRows(all_rows, rank, [&] { Tensor({rows, 2}); });
  }
  // The same, in which torchao's class is around the weight.
  void RowsToCastToFloat8(std::int64_t all_rows, std::int64_t rows, std::int64_t rank) {
    DistributedRows(all_rows, rank, [&] {
      BeginWrapper("torchao.float8.fsdp_utils", "WeightWithDynamicFloat8CastTensor", {rows, 2});
      pickle_.BeginDict().Text("_tensor");
      Tensor({rows, 2});
      pickle_.Text("_precomputed_scale").None().EndDict().EndTuple().Reduce();
    });
  }

  PickleWriter& pickle() { return pickle_; }
  Bytes Take() { return torch_save::ObjectItem(pickle_.Take(), storages_); }

 private:
  void DistributedRows(std::int64_t all_rows, std::int64_t rank,
                       const std::function<void()>& write_local) {
    BeginWrapper("torch.distributed.tensor", "DTensor", {all_rows, 2});
    pickle_.BeginDict().Text("_local_tensor");
    write_local();
    pickle_.Text("_spec");
    BeginInstance("torch.distributed.tensor._dtensor_spec", "DTensorSpec");
    pickle_.Text("mesh");
    BeginInstance("torch.distributed.device_mesh", "DeviceMesh");
    pickle_.Text("_coordinate_on_dim").BeginList().Int(rank).EndList().EndDict().Build();
    pickle_.Text("placements").BeginTuple();
    BeginInstance("torch.distributed.tensor.placement_types", "Shard");
    pickle_.Text("dim").Int(0).EndDict().Build().EndTuple().EndDict().Build();
    pickle_.EndDict().EndTuple().Reduce();
  }
  // A tensor whose class has no elements of its own, up to its state. EndTuple and Reduce follow.
  void BeginWrapper(std::string_view module, std::string_view name, const Dims& shape) {
    pickle_.Global("torch._tensor", "_rebuild_from_type_v2").BeginTuple();
    pickle_.Global("torch._utils", "_rebuild_wrapper_subclass").Global(module, name);
    pickle_.BeginTuple().Global(module, name).Global("torch", "float32").IntTuple(shape).EndTuple();
  }
  // Attributes, EndDict and Build follow.
  void BeginInstance(std::string_view module, std::string_view name) {
    pickle_.Global(module, name).EmptyTuple().NewObject().BeginDict();
  }

  void AddShard(const Shard& shard) {
    pickle_.Global("torch.distributed._shard.sharded_tensor.shard", "Shard").EmptyTuple();
    pickle_.NewObject().BeginTuple().None().BeginDict().Text("tensor");
    Tensor({shard.rows, 2});
    pickle_.Text("metadata").Global("torch.distributed._shard.metadata", "ShardMetadata");
    pickle_.EmptyTuple().NewObject().BeginTuple().None().BeginDict();
    pickle_.Text("shard_offsets").BeginList().Int(shard.row).Int(0).EndList();
    pickle_.Text("shard_sizes").BeginList().Int(shard.rows).Int(2).EndList();
    pickle_.EndDict().EndTuple().Build().EndDict().EndTuple().Build();
  }

  PickleWriter pickle_{pickle::Dialect::kWeightsOnly};
  std::vector<Bytes> storages_;
};

class PickledFilesTest : public ::testing::Test {
 protected:
  PickledFilesTest() { EXPECT_THAT(storage_->MakeDirectories("/c"), IsOk()); }

  void Write(const std::string& name, const std::function<void(PickledFile&)>& fill) {
    PickledFile file;
    fill(file);
    ASSERT_THAT(WriteSmallFile(*storage_, Path("/c") / name, file.Take()), IsOk());
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

// Two keys are written as Python subscripts, because they are one without; one of them is written
// so in the file, too.
TEST_F(PickledFilesTest, AKeyThatAFileHasTwiceIsDamage) {
  Write("model_world_size_1_rank_0.pt", [](PickledFile& file) {
    file.pickle().BeginDict().Text("['a.b']");
    file.Tensor({2});
    file.pickle().Text("a.b");
    file.Tensor({2});
    file.pickle().Text("a").BeginDict().Text("b");
    file.Tensor({2});
    file.pickle().EndDict().EndDict();
  });
  const auto source = OpenSource(*storage_, "/c");
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT((*source)->index().CheckDeliverable("['a.b']"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT((*source)->index().CheckDeliverable("['a']['b']"), IsOk());
}

// As FSDP2 has the weights that it gathers in float8.
TEST_F(PickledFilesTest, AWeightToCastToFloat8IsTheWeight) {
  constexpr std::array<std::int64_t, 2> kRows = {3, 2};
  for (std::size_t rank = 0; rank < kRows.size(); ++rank) {
    Write("model_world_size_2_rank_" + std::to_string(rank) + ".pt", [&](PickledFile& file) {
      file.pickle().BeginDict().Text("w");
      file.RowsToCastToFloat8(5, kRows[rank], static_cast<std::int64_t>(rank));
      file.pickle().EndDict();
    });
  }
  const auto source = OpenSource(*storage_, "/c");
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT(ValidateIndex(**source), IsEmpty());
  const CheckpointIndex& index = (*source)->index();
  ASSERT_THAT(index.tensors(), SizeIs(1));
  EXPECT_EQ(index.tensors()[0].shape, (Dims{5, 2}));
  EXPECT_THAT(index.chunks(index.tensors()[0]), SizeIs(2));
}

// FSDP2 leaves buffers as they are, and the optimizer has none. Here the mesh is of one rank.
TEST_F(PickledFilesTest, BuffersBesideDTensorsAreNoParameters) {
  Write("model_world_size_1_rank_0.pt", [](PickledFile& file) {
    file.pickle().BeginDict().Text("a.correction_bias");
    file.Tensor({3});
    file.pickle().Text("b.weight");
    file.Rows(2, 2, 0);
    file.pickle().EndDict();
  });
  Write("optim_world_size_1_rank_0.pt", [](PickledFile& file) {
    file.pickle().BeginDict().Text("state").BeginDict().Int(0).BeginDict().Text("exp_avg");
    file.Rows(2, 2, 0);
    file.pickle().EndDict().EndDict().Text("param_groups").BeginList().BeginDict();
    file.pickle().Text("params").BeginList().Int(0).EndList().EndDict().EndList().EndDict();
  });
  const auto source = OpenSource(*storage_, "/c");
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT(ValidateIndex(**source), IsEmpty());
  EXPECT_THAT((*source)->index().tensors(), SizeIs(3));
  EXPECT_NE((*source)->index().FindTensor("optim.state.b.weight.exp_avg"), nullptr);
  const ObjectEntry* const params = (*source)->index().FindObject("optim.param_groups.0.params");
  ASSERT_NE(params, nullptr);
  EXPECT_EQ((*source)->ReadObject(*params)->json, R"(["b.weight"])");
}

// Whose model has the shards of each rank, of a tensor of five rows.
class ShardedTensorTest : public PickledFilesTest {
 protected:
  Result<std::unique_ptr<CheckpointSource>> Open(
      const std::vector<std::vector<PickledFile::Shard>>& shards) {
    for (std::size_t rank = 0; rank < shards.size(); ++rank) {
      Write("model_world_size_" + std::to_string(shards.size()) + "_rank_" + std::to_string(rank) +
                ".pt",
            [&](PickledFile& file) {
              file.pickle().BeginDict().Text("w");
              file.ShardedTensor(5, shards[rank]);
              file.pickle().EndDict();
            });
    }
    return OpenSource(*storage_, "/c");
  }
};

TEST_F(ShardedTensorTest, IsPutTogetherByTheOffsetsOfItsShards) {
  // The last rank has none.
  const auto source = Open({{{.row = 0, .rows = 3}}, {{.row = 3, .rows = 2}}, {}});
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT(ValidateIndex(**source), IsEmpty());
  const CheckpointIndex& index = (*source)->index();
  ASSERT_THAT(index.tensors(), SizeIs(1));
  EXPECT_EQ(index.tensors()[0].key, "w");
  EXPECT_THAT(index.chunks(index.tensors()[0]), SizeIs(2));
  EXPECT_THAT(index.objects(), IsEmpty());
}

TEST_F(ShardedTensorTest, MayHaveSeveralShardsInARank) {
  const auto source = Open({{{.row = 3, .rows = 2}, {.row = 0, .rows = 3}}});
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT(ValidateIndex(**source), IsEmpty());
}

TEST_F(ShardedTensorTest, WithoutSomeOfItsRowsIsDamaged) {
  const auto source = Open({{{.row = 0, .rows = 3}}, {{.row = 4, .rows = 1}}});
  ASSERT_THAT(source, IsOk());
  const std::vector<Problem> problems = ValidateIndex(**source);
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].kind, ErrorKind::kCoverage);
  EXPECT_EQ(problems[0].tensor, "w");
}

TEST_F(ShardedTensorTest, WithAShardOutsideIsRefused) {
  const auto source = Open({{{.row = 0, .rows = 3}}, {{.row = 4, .rows = 2}}});
  ASSERT_THAT(source, IsOk());
  const Status status = (*source)->index().CheckDeliverable("w");
  ASSERT_THAT(status, FailsWith(ErrorKind::kOutOfRange));
  EXPECT_EQ(status.first().file, "model_world_size_2_rank_1.pt");
}

// A model of two weights, of which the second is a vector, and an optimizer of one rank.
class OptimizerReasonTest : public PickledFilesTest {
 protected:
  // Why the optimizer is not read, if its state has these shapes.
  Problem ReasonFor(const std::vector<Dims>& shapes, int num_groups = 1) {
    Write("model_world_size_1_rank_0.pt", [](PickledFile& file) {
      file.pickle().BeginDict().Text("a.weight");
      file.Tensor({2, 2});
      file.pickle().Text("b.weight");
      file.Tensor({3});
      file.pickle().EndDict();
    });
    Write("optim_world_size_1_rank_0.pt", [&](PickledFile& file) {
      file.pickle().BeginDict().Text("state").BeginDict();
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        file.pickle().Int(static_cast<std::int64_t>(i)).BeginDict().Text("exp_avg");
        file.Tensor(shapes[i]);
        file.pickle().EndDict();
      }
      file.pickle().EndDict().Text("param_groups").BeginList();
      for (int group = 0; group < num_groups; ++group) {
        file.pickle().BeginDict().Text("params").BeginList();
        if (num_groups == 1) file.pickle().Int(0).Int(1);
        if (num_groups == 2) file.pickle().Int(group);
        file.pickle().EndList().EndDict();
      }
      file.pickle().EndList().EndDict();
    });
    const auto source = OpenSource(*storage_, "/c");
    EXPECT_THAT(source, IsOk());
    if (!source.ok() || (*source)->index().problems().empty()) return {};
    return (*source)->index().problems().front();
  }
};

TEST_F(OptimizerReasonTest, IsNoneWhereTheShapesAreTheModels) {
  EXPECT_EQ(ReasonFor({{2, 2}, {3}}).message, "");
}

TEST_F(OptimizerReasonTest, IsTheOrderWhereShapesAreThoseOfOtherParameters) {
  const Problem reason = ReasonFor({{3}, {2, 2}});
  EXPECT_THAT(reason.message, HasSubstr("another order"));
  EXPECT_EQ(reason.tensor, "state.0.exp_avg");
  EXPECT_EQ(reason.hint, "");
}

TEST_F(OptimizerReasonTest, IsThatParametersAreFlatWhereAVectorIsNoneOfTheModels) {
  const Problem reason = ReasonFor({{7}});
  EXPECT_THAT(reason.message, HasSubstr("flat parameters"));
  EXPECT_THAT(reason.hint, HasSubstr("FSDP1"));
}

TEST_F(OptimizerReasonTest, IsTheGroupsWhereThereAreSeveral) {
  const Problem reason = ReasonFor({{3}, {2, 2}}, 2);
  EXPECT_THAT(reason.message, HasSubstr("by groups"));
  EXPECT_EQ(reason.actual, "2");
}

}  // namespace
}  // namespace ckpt::verl
