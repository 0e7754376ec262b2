// What optimizers keep, in the files of two tensor ranks: found, and refused by name.
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/checkpoint/read.h"
#include "core/checkpoint/validate.h"
#include "core/io/memory_storage.h"
#include "core/json/json_reader.h"
#include "formats/mp_rank/internal/source.h"
#include "tests/formats/mp_rank/run_files.h"
#include "tests/testing/matchers.h"

namespace ckpt::mp_rank {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::SizeIs;

constexpr const char* kWordEmbedding = "embedding.word_embeddings.weight";
constexpr const char* kFc2 = "decoder.layers.0.mlp.linear_fc2.weight";
constexpr const char* kFinalNorm = "decoder.final_layernorm.weight";

using Values = std::vector<float>;
// Of all ranks together.
const std::map<std::string, Values> kWhole = {
    {kWordEmbedding, {10, 11, 12, 13}}, {kFc2, {20, 21, 22, 23}}, {kFinalNorm, {30, 31}}};

class MpRankOptimizerTest : public ::testing::Test {
 protected:
  void Write(int rank, const std::string& name, const Bytes& bytes) {
    const Path directory = Path("/c") / fmt::format("mp_rank_{:02}", rank);
    ASSERT_THAT(storage_->MakeDirectories(directory), IsOk());
    ASSERT_THAT(storage_->RemoveAll(directory / name), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, directory / name, bytes), IsOk());
  }
  void WriteRun(const RunOptions& options) {
    for (int rank = 0; rank < 2; ++rank) {
      const auto parameters = ParametersOfRank(rank);
      Write(rank, "model_optim_rng.pt", EncodeRunFile(parameters, options));
      if (options.is_distributed) Write(rank, "distrib_optim.pt", EncodeBuffers(parameters));
    }
  }
  std::unique_ptr<CheckpointSource> Open() {
    auto source = OpenSource(*storage_, "/c");
    EXPECT_THAT(source, IsOk());
    return source.ok() ? *std::move(source) : nullptr;
  }

  static Values Read(const CheckpointSource& source, const std::string& key) {
    const GlobalTensor* const tensor = source.index().FindTensor(key);
    EXPECT_NE(tensor, nullptr) << key;
    if (tensor == nullptr) return {};
    EXPECT_EQ(tensor->dtype, DType::kFloat32);
    Bytes bytes(NumBytes(tensor->shape, tensor->dtype));
    EXPECT_THAT(ReadBox(source, *tensor, WholeBox(tensor->shape), bytes, 1 << 20), IsOk());
    Values values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  static void ExpectState(const CheckpointSource& source) {
    EXPECT_THAT(ValidateIndex(source), IsEmpty());
    EXPECT_THAT(source.index().tensors(), SizeIs(4 * kWhole.size()));
    const std::map<std::string, float> factors = {
        {"param", 1}, {"exp_avg", kFirstMoment}, {"exp_avg_sq", kSecondMoment}};
    for (const auto& [field, factor] : factors) {
      for (const auto& [name, whole] : kWhole) {
        Values expected = whole;
        for (float& value : expected) value *= factor;
        EXPECT_EQ(Read(source, fmt::format("optimizer.state.{}.{}", field, name)), expected);
      }
    }
  }

  // The only problem besides that of what is not read: why there is no optimizer.
  Problem Refusal(const std::string& unread) {
    const auto source = Open();
    if (source == nullptr) return {};
    EXPECT_THAT(source->index().tensors(), SizeIs(kWhole.size()));
    EXPECT_EQ(source->index().FindObject("common_state"), nullptr);
    EXPECT_NE(source->index().FindObject("args"), nullptr);
    const std::vector<Problem> problems = ValidateIndex(*source);
    EXPECT_THAT(problems, SizeIs(2));
    if (problems.size() != 2) return {};
    const bool is_first = problems[0].kind != ErrorKind::kLeftover;
    EXPECT_THAT(problems[is_first ? 1 : 0].actual, HasSubstr(unread));
    const Problem& refusal = problems[is_first ? 0 : 1];
    EXPECT_EQ(refusal.severity, Severity::kWarning);
    return refusal;
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(MpRankOptimizerTest, BuffersBecomeTensorsOfTheModel) {
  WriteRun({});
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  ExpectState(*source);
}

// Two experts, each [2, 2]: a rank has a column of each, and both as rows of one array.
TEST_F(MpRankOptimizerTest, StatesOfGroupedExpertsAreThoseOfEach) {
  const auto value = [](int expert, int row, int column) {
    return static_cast<float>(40 + 10 * expert + 2 * row + column);
  };
  for (int rank = 0; rank < 2; ++rank) {
    auto parameters = ParametersOfRank(rank);
    parameters.push_back(
        {"decoder.layers.0.mlp.experts.weight2",
         {2, 2},
         {value(0, 0, rank), value(0, 1, rank), value(1, 0, rank), value(1, 1, rank)}});
    Write(rank, "model_optim_rng.pt", EncodeRunFile(parameters, {.experts = 2}));
    Write(rank, "distrib_optim.pt", EncodeBuffers(parameters));
  }
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  EXPECT_THAT(ValidateIndex(*source), IsEmpty());
  for (int expert = 0; expert < 2; ++expert) {
    Values expected;
    for (const int row : {0, 1}) {
      for (const int column : {0, 1}) {
        expected.push_back(value(expert, row, column) * kSecondMoment);
      }
    }
    EXPECT_EQ(Read(*source, fmt::format("optimizer.state.exp_avg_sq.decoder.layers.0.mlp.experts."
                                        "linear_fc2.weight{}",
                                        expert)),
              expected);
  }
}

// Readers take the first; the others stand beside it.
TEST_F(MpRankOptimizerTest, EveryRankHasItsCommonState) {
  WriteRun({});
  Write(1, "model_optim_rng.pt", EncodeRunFile(ParametersOfRank(1), {.samples = 57}));
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  const ObjectEntry* const state = source->index().FindObject("common_state");
  ASSERT_NE(state, nullptr);
  const auto copies = source->index().copies(*state);
  ASSERT_THAT(copies, SizeIs(1));
  EXPECT_THAT(source->ReadObject(*state)->json, HasSubstr("\"consumed_train_samples\":56"));
  EXPECT_THAT(source->ReadObject(copies[0])->json, HasSubstr("\"consumed_train_samples\":57"));
}

TEST_F(MpRankOptimizerTest, GroupsBecomeTensorsOfTheModel) {
  WriteRun({.is_distributed = false});
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  ExpectState(*source);
}

TEST_F(MpRankOptimizerTest, ParametersInOneGroupKeepTheirOrder) {
  WriteRun({.is_distributed = false, .groups = {{0, 1, 2}}});
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  ExpectState(*source);
}

TEST_F(MpRankOptimizerTest, TheCommonStateIsThatOfMegatronCore) {
  for (const bool is_distributed : {true, false}) {
    WriteRun({.is_distributed = is_distributed});
    const auto source = Open();
    ASSERT_NE(source, nullptr);
    ASSERT_THAT(source->index().objects(), SizeIs(1));
    const auto common = source->ReadObject(source->index().objects().front());
    ASSERT_THAT(common, IsOk());
    const auto json = JsonDocument::Parse(common->json, "common_state");
    ASSERT_THAT(json, IsOk());
    EXPECT_EQ(json->root().At("iteration")->Int64().value(), 7);
    EXPECT_EQ(json->root().At("optimizer")->At("common_step")->Int64().value(), 3);
    const auto groups = json->root().At("optimizer")->At("param_groups")->Items();
    ASSERT_THAT(*groups, SizeIs(2));
    EXPECT_EQ((*groups)[1].At("wd_mult")->Double().value(), 0);
    EXPECT_FALSE((*groups)[0].Find("params"));
    EXPECT_TRUE(json->root().At("args").ok());
    ASSERT_THAT(storage_->RemoveAll("/c"), IsOk());
  }
}

TEST_F(MpRankOptimizerTest, ABufferOfAnotherSizeIsRefused) {
  WriteRun({});
  Write(1, "distrib_optim.pt", EncodeBuffers(ParametersOfRank(1), 1));
  const Problem refusal = Refusal("optimizer, distrib_optim.pt, ");
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_EQ(refusal.file, "mp_rank_01/distrib_optim.pt");
  EXPECT_EQ(refusal.expected, "130 numbers");
  EXPECT_EQ(refusal.actual, "131");
}

// Whatever its bytes look like, it is not what a rank saved.
TEST_F(MpRankOptimizerTest, ADamagedFileOfBuffersIsAnErrorBesideTheModel) {
  const Bytes whole = EncodeBuffers(ParametersOfRank(1));
  Bytes behind = whole;
  behind.resize(whole.size() + 100);
  const Bytes half(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2));
  for (const auto& [content, kind] : {std::pair{Bytes(whole.size()), ErrorKind::kUnsupported},
                                      {behind, ErrorKind::kUnsupported},
                                      {half, ErrorKind::kTruncated},
                                      {Bytes(), ErrorKind::kTruncated}}) {
    WriteRun({});
    Write(1, "distrib_optim.pt", content);
    const auto source = Open();
    ASSERT_NE(source, nullptr);
    EXPECT_THAT(source->index().tensors(), SizeIs(kWhole.size()));
    const std::vector<Problem> problems = ValidateIndex(*source);
    ASSERT_THAT(problems, SizeIs(2));
    const Problem& damage = problems[problems[0].kind == ErrorKind::kLeftover ? 1 : 0];
    EXPECT_EQ(damage.severity, Severity::kError);
    EXPECT_EQ(damage.kind, kind) << damage.message;
    EXPECT_THAT(damage.file, HasSubstr("mp_rank_01/distrib_optim.pt"));
  }
}

TEST_F(MpRankOptimizerTest, AnAbsentFileOfBuffersIsNamed) {
  WriteRun({});
  ASSERT_THAT(storage_->RemoveAll("/c/mp_rank_01/distrib_optim.pt"), IsOk());
  const Problem refusal = Refusal("distrib_optim.pt");
  EXPECT_EQ(refusal.kind, ErrorKind::kMissing);
  EXPECT_EQ(refusal.file, "mp_rank_01/model_optim_rng.pt");
}

TEST_F(MpRankOptimizerTest, BuffersInAnotherOrderThanTheModelAreFound) {
  WriteRun({});
  auto swapped = ParametersOfRank(0);
  std::swap(swapped[0], swapped[1]);  // of one size
  Write(0, "distrib_optim.pt", EncodeBuffers(swapped));
  const Problem refusal = Refusal("distrib_optim.pt");
  EXPECT_EQ(refusal.kind, ErrorKind::kValueMismatch);
  EXPECT_EQ(refusal.tensor, "model." + std::string(kWordEmbedding));
}

TEST_F(MpRankOptimizerTest, BucketsBecomeTensorsOfTheModel) {
  for (const bool is_of_gradients : {false, true}) {
    WriteRun({});
    for (int rank = 0; rank < 2; ++rank) {
      Write(rank, "distrib_optim.pt",
            EncodeBuckets(ParametersOfRank(rank), {.is_of_gradients = is_of_gradients}));
    }
    const auto source = Open();
    ASSERT_NE(source, nullptr);
    ExpectState(*source);
    ASSERT_THAT(storage_->RemoveAll("/c"), IsOk());
  }
}

TEST_F(MpRankOptimizerTest, BucketsOfAnotherSizeAreRefused) {
  WriteRun({});
  Write(1, "distrib_optim.pt", EncodeBuckets(ParametersOfRank(1), {.has_sizes = false}));
  EXPECT_THAT(Refusal("distrib_optim.pt").expected, HasSubstr("per_bucket_numel_unpadded"));
  Write(1, "distrib_optim.pt", EncodeBuckets(ParametersOfRank(1), {.surplus_elems = 1}));
  const Problem refusal = Refusal("distrib_optim.pt");
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_EQ(refusal.expected, "buckets of 3, 5 numbers");
  EXPECT_EQ(refusal.actual, "tensors of 8, 8");
}

TEST_F(MpRankOptimizerTest, AFormOfBuffersThatIsNotReadIsRefused) {
  WriteRun({});
  RunFileWriter old;
  old.pickle().BeginDict().Int(0).BeginDict().Global("torch", "float32");
  old.pickle().BeginDict().Text("master_param").BeginList();
  old.Tensor(DType::kFloat32, {2}, {1, 2});
  old.pickle().EndList().EndDict().EndDict().EndDict();
  Write(0, "distrib_optim.pt", old.Take());
  const Problem refusal = Refusal("distrib_optim.pt");
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_EQ(refusal.tensor, "0.torch.float32.master_param.0");
}

// Neither of the two may stand for the other.
TEST_F(MpRankOptimizerTest, ABufferThatIsThereTwiceIsRefused) {
  WriteRun({});
  RunFileWriter twice;
  twice.pickle().BeginDict().Int(0).BeginDict();
  twice.pickle().BeginTuple().Global("torch", "bfloat16").Global("torch", "float32").EndTuple();
  twice.pickle().BeginDict();
  for (const char* field : {"param", "param.0"}) {
    twice.pickle().Text(field);
    twice.Tensor(DType::kFloat32, {2}, {1, 2});
  }
  twice.pickle().EndDict().EndDict().EndDict();
  Write(0, "distrib_optim.pt", twice.Take());
  const Problem refusal = Refusal("distrib_optim.pt");
  EXPECT_EQ(refusal.kind, ErrorKind::kBadMetadata);
  EXPECT_EQ(refusal.tensor, "0.(torch.bfloat16, torch.float32).param.0");
}

TEST_F(MpRankOptimizerTest, GroupsOfOtherParametersAreRefused) {
  WriteRun({.is_distributed = false, .groups = {{0}, {1, 2}}});
  EXPECT_EQ(Refusal("optimizer").kind, ErrorKind::kUnsupported);
  WriteRun({.is_distributed = false, .groups = {{0}, {2}}});
  EXPECT_EQ(Refusal("optimizer").kind, ErrorKind::kUnsupported);
}

TEST_F(MpRankOptimizerTest, WhatNeitherAdamNorSgdKeepsIsNamed) {
  WriteRun({.is_distributed = false, .other_state = "max_exp_avg_sq"});
  const Problem refusal = Refusal("optimizer");
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_EQ(refusal.tensor, "optimizer.optimizer.state.0.max_exp_avg_sq");
}

TEST_F(MpRankOptimizerTest, UnequalStepsOfRanksAreRefused) {
  for (const bool is_distributed : {true, false}) {
    WriteRun({.is_distributed = is_distributed});
    Write(1, "model_optim_rng.pt",
          EncodeRunFile(ParametersOfRank(1), {.is_distributed = is_distributed, .step = 4}));
    const Problem refusal = Refusal("optimizer");
    EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
    EXPECT_EQ(refusal.actual, "3, 4");
    ASSERT_THAT(storage_->RemoveAll("/c"), IsOk());
  }
}

TEST_F(MpRankOptimizerTest, ReplicasOfTheOptimizerAreCompared) {
  WriteRun({});
  auto other = ParametersOfRank(1);
  other[2].values[1] = 99;  // the norm, which both ranks have
  Write(1, "distrib_optim.pt", EncodeBuffers(other));
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  const GlobalTensor* const tensor =
      source->index().FindTensor("optimizer.state.exp_avg." + std::string(kFinalNorm));
  ASSERT_NE(tensor, nullptr);
  Bytes bytes(NumBytes(tensor->shape, tensor->dtype));
  EXPECT_THAT(ReadBox(*source, *tensor, WholeBox(tensor->shape), bytes, 1 << 20),
              testing::FailsWith(ErrorKind::kChecksum));
}

}  // namespace
}  // namespace ckpt::mp_rank
