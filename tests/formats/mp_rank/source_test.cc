// Files as Megatron's ranks save them, of two tensor ranks and two stages, whole and mixed up.
#include "formats/mp_rank/internal/source.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/checkpoint/digest.h"
#include "core/checkpoint/read.h"
#include "core/checkpoint/validate.h"
#include "core/io/memory_storage.h"
#include "core/io/posix_storage.h"
#include "core/json/json_reader.h"
#include "formats/pickle/writer.h"
#include "formats/torch_save/torch_item.h"
#include "tests/testing/matchers.h"

namespace ckpt::mp_rank {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;
using ::testing::SizeIs;

// A tensor of bytes: the rank's elements.
struct Stored {
  Dims shape;
  std::vector<int> elements;
};

struct RankFile {
  std::map<std::string, Stored> model;
  double version = 3.0;
  std::map<std::string, std::int64_t> args = {
      {"tensor_model_parallel_size", 2}, {"pipeline_model_parallel_size", 2}, {"num_layers", 2}};
  std::vector<const char*> flags = {"swiglu"};
  bool ties_head = true;
};

Bytes Encode(const RankFile& file) {
  std::vector<Bytes> storages;
  pickle::PickleWriter pickle(pickle::Dialect::kWeightsOnly);
  pickle.BeginDict();
  pickle.Text("args").Global("argparse", "Namespace").EmptyTuple().NewObject().BeginDict();
  for (const auto& [name, value] : file.args) pickle.Text(name).Int(value);
  for (const char* const flag : file.flags) pickle.Text(flag).Bool(true);
  pickle.Text("untie_embeddings_and_output_weights").Bool(!file.ties_head).EndDict().Build();
  pickle.Text("checkpoint_version").Float(file.version).Text("iteration").Int(7);
  const auto write = [&](const Stored& stored) {
    Bytes bytes;
    for (const int element : stored.elements) bytes.push_back(static_cast<std::byte>(element));
    torch_save::WriteTensor(static_cast<std::int64_t>(storages.size()), DType::kUint8, stored.shape,
                            pickle);
    storages.push_back(std::move(bytes));
  };
  pickle.Text("model").BeginDict();
  for (const auto& [name, stored] : file.model) {
    pickle.Text(name);
    write(stored);
  }
  pickle.EndDict().Text("modelopt_state").BeginDict().Text("mode").Int(4).EndDict();
  pickle.Text("optimizer").BeginDict().Text("moments");
  write({.shape = {3}, .elements = {1, 2, 3}});
  pickle.EndDict().EndDict();
  return torch_save::ObjectItem(pickle.Take(), storages);
}

constexpr const char* kFc1 = "decoder.layers.0.mlp.linear_fc1.weight";
constexpr const char* kNorm = "decoder.layers.0.input_layernorm.weight";
constexpr const char* kProjection = "decoder.layers.0.self_attention.linear_proj.weight";
constexpr const char* kEmbedding = "embedding.word_embeddings.weight";

// Elements say where they belong: layer, then a letter of the tensor, then the position.
RankFile FileOf(int tensor, int stage) {
  const int base = 100 * stage;
  RankFile file;
  const int t = 2 * tensor;
  file.model[kFc1] = {{4, 1}, {base + t, base + t + 1, base + 10 + t, base + 11 + t}};
  file.model[kNorm] = {{2}, {base + 20, base + 21}};
  file.model[kProjection] = {{2, 1}, {base + 30 + tensor, base + 32 + tensor}};
  const Stored words = {{1, 2}, {40 + t, 41 + t}};
  if (stage == 0) file.model[kEmbedding] = words;
  if (stage == 1) file.model["output_layer.weight"] = words;
  return file;
}

class MpRankTest : public ::testing::Test {
 protected:
  MpRankTest() {
    for (int tensor = 0; tensor < 2; ++tensor) {
      for (int stage = 0; stage < 2; ++stage) Write(tensor, stage, FileOf(tensor, stage));
    }
  }

  static std::string NameOf(int tensor, int stage) {
    return fmt::format("mp_rank_{:02}_{:03}", tensor, stage);
  }
  void Write(int tensor, int stage, const RankFile& file) {
    const Path directory = Path("/c") / NameOf(tensor, stage);
    ASSERT_THAT(storage_->RemoveAll(directory), IsOk());
    ASSERT_THAT(storage_->MakeDirectories(directory), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, directory / "model_optim_rng.pt", Encode(file)), IsOk());
  }
  Result<std::unique_ptr<CheckpointSource>> Open() { return OpenSource(*storage_, "/c"); }

  static Result<std::vector<int>> Elements(const CheckpointSource& source, std::string_view key) {
    const GlobalTensor* const tensor = source.index().FindTensor(key);
    if (tensor == nullptr) return Error(ErrorKind::kNotFound, "no such tensor");
    std::vector<int> elements;
    Bytes bytes(NumBytes(tensor->shape, tensor->dtype));
    CKPT_RETURN_IF_ERROR(ReadBox(source, *tensor, WholeBox(tensor->shape), bytes, 1 << 20));
    for (const std::byte byte : bytes) elements.push_back(static_cast<int>(byte));
    return elements;
  }

  // Why the only tensor that has errors has no chunks.
  static Problem OnlyError(const CheckpointSource& source) {
    std::vector<Problem> errors;
    for (const Problem& problem : ValidateIndex(source)) {
      const bool is_cause = problem.kind != ErrorKind::kCoverage;
      if (problem.severity == Severity::kError && is_cause) errors.push_back(problem);
    }
    EXPECT_THAT(errors, SizeIs(1));
    return errors.empty() ? Problem() : errors.front();
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

// Saved by real Megatron-Core (tests/golden/mp_rank/make.py).
TEST(MpRankGoldenTest, EveryTensorIsWhatOneRankSaved) {
  const Path golden = Path(CKPT_SOURCE_DIR) / "tests/golden/mp_rank";
  const auto source = OpenSource(PosixStorage(), golden / "tp2_pp2");
  ASSERT_THAT(source, IsOk());
  const auto account = ReadSmallFile(PosixStorage(), golden / "tp2_pp2.json", 1 << 20);
  ASSERT_THAT(account, IsOk());
  const auto json = JsonDocument::Parse(*account, "tp2_pp2.json");
  const auto expected = json->root().At("tensors")->Members();
  ASSERT_THAT((*source)->index().tensors(), SizeIs(expected->size()));
  for (const auto& [key, tensor] : *expected) {
    const GlobalTensor* const found = (*source)->index().FindTensor(key);
    ASSERT_NE(found, nullptr) << key;
    EXPECT_EQ(DTypeName(found->dtype), tensor.At("dtype")->Text().value()) << key;
    EXPECT_EQ(found->shape, tensor.At("shape")->Int64Array().value()) << key;
    const auto digest = DigestTensor(**source, *found, HashAlgorithm::kSha256, 1 << 20);
    ASSERT_THAT(digest, IsOk()) << key;
    EXPECT_EQ(*digest, tensor.At("sha256")->Text().value()) << key;
  }
  EXPECT_THAT((*source)->VerifyRest(), IsOk());
  EXPECT_EQ((*source)->protection(), Protection::kCrc32);
}

TEST_F(MpRankTest, TheModelIsWhatOneRankWouldHaveSaved) {
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  const std::map<std::string, std::vector<int>> expected = {
      {kEmbedding, {40, 41, 42, 43}},
      {kFc1, {0, 1, 2, 3, 10, 11, 12, 13}},
      {kNorm, {20, 21}},
      {kProjection, {30, 31, 32, 33}},
      {"decoder.layers.1.mlp.linear_fc1.weight", {100, 101, 102, 103, 110, 111, 112, 113}},
      {"decoder.layers.1.input_layernorm.weight", {120, 121}},
      {"decoder.layers.1.self_attention.linear_proj.weight", {130, 131, 132, 133}}};
  EXPECT_THAT((*source)->index().tensors(), SizeIs(expected.size()));
  for (const auto& [name, elements] : expected) {
    const auto found = Elements(**source, "model." + name);
    ASSERT_THAT(found, IsOk()) << name;
    EXPECT_EQ(*found, elements) << name;
  }
  EXPECT_NE((*source)->index().FindObject("args"), nullptr);
  EXPECT_EQ((*source)->index().FindObject("optimizer"), nullptr);
  // Why the optimizer is not read, and what it takes.
  const auto problems = ValidateIndex(**source);
  ASSERT_THAT(problems, SizeIs(2));
  EXPECT_EQ(problems.front().kind, ErrorKind::kBadMetadata);
  EXPECT_EQ(problems.back().actual, "optimizer, 12 B");
}

TEST_F(MpRankTest, AMemberWhoseNameBeginsAsThatOfTheModelIsAnObject) {
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  const ObjectEntry* const state = (*source)->index().FindObject("modelopt_state");
  ASSERT_NE(state, nullptr);
  const auto read = (*source)->ReadObject(*state);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->json, R"({"mode":4})");
}

TEST_F(MpRankTest, AReplicaWithOtherElementsIsFound) {
  RankFile other = FileOf(1, 0);
  other.model[kNorm].elements[1] = 99;
  Write(1, 0, other);
  RankFile head = FileOf(0, 1);
  head.model["output_layer.weight"].elements[0] = 99;
  Write(0, 1, head);
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  for (const std::string name : {kNorm, kEmbedding}) {
    const auto found = Elements(**source, "model." + name);
    EXPECT_THAT(found, FailsWith(ErrorKind::kChecksum)) << name;
    EXPECT_EQ(found.status().first().tensor, "model." + name);
  }
  EXPECT_THAT(Elements(**source, "model." + std::string(kFc1)), IsOk());
}

TEST_F(MpRankTest, ATensorOfAnUnknownNameIsRefusedAlone) {
  for (int tensor = 0; tensor < 2; ++tensor) {
    RankFile file = FileOf(tensor, 0);
    file.model["decoder.novelty"] = {{2}, {1, 2}};
    Write(tensor, 0, file);
  }
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  EXPECT_EQ(OnlyError(**source).kind, ErrorKind::kUnsupported);
  EXPECT_EQ(OnlyError(**source).tensor, "model.decoder.novelty");
  EXPECT_FALSE(Elements(**source, "model.decoder.novelty").ok());
  EXPECT_THAT(Elements(**source, "model." + std::string(kNorm)), IsOk());
}

TEST_F(MpRankTest, ScalingStatesOfSingleRanksAreListed) {
  for (int tensor = 0; tensor < 2; ++tensor) {
    RankFile file = FileOf(tensor, 0);
    file.model["decoder.layers.0.mlp.linear_fc1._extra_state"] = {{2}, {tensor, 7}};
    Write(tensor, 0, file);
  }
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  const auto problems = ValidateIndex(**source);
  ASSERT_THAT(problems, SizeIs(2));
  EXPECT_EQ(problems.back().actual, "optimizer, _extra_state, 16 B");
  EXPECT_THAT((*source)->index().tensors(), SizeIs(7));
}

TEST_F(MpRankTest, APartThatDoesNotFitIsAnErrorOfItsTensor) {
  RankFile file = FileOf(1, 0);
  file.model[kFc1] = {{2, 1}, {1, 2}};
  Write(1, 0, file);
  const auto other_shape = Open();
  ASSERT_THAT(other_shape, IsOk());
  EXPECT_EQ(OnlyError(**other_shape).kind, ErrorKind::kShapeMismatch);
  file.model.erase(kFc1);
  Write(1, 0, file);
  const auto absent = Open();
  ASSERT_THAT(absent, IsOk());
  EXPECT_EQ(OnlyError(**absent).kind, ErrorKind::kMissing);
  EXPECT_THAT(OnlyError(**absent).actual, HasSubstr("rank 1"));
}

// Two tensor ranks and two expert ranks with two experts each, whose weights are one array.
class GroupedExpertsTest : public MpRankTest {
 protected:
  static constexpr int kHidden = 3;
  static constexpr const char* kWeight1 = "decoder.layers.0.mlp.experts.weight1";
  static constexpr const char* kWeight2 = "decoder.layers.0.mlp.experts.weight2";

  // Elements say where they belong: by the expert, gate or up, the tensor rank, and the position in
  // the hidden state. A rank has one of two rows of each gate and each up.
  static int Fc1(int expert, int half, int tensor, int hidden) {
    return 40 * expert + 20 * half + 10 * tensor + hidden;
  }
  static int Fc2(int expert, int tensor, int hidden) { return Fc1(expert, 0, tensor, hidden) + 5; }

  static RankFile ExpertsOf(int tensor, int expert_rank) {
    RankFile file;
    file.args = {{"tensor_model_parallel_size", 2},
                 {"expert_model_parallel_size", 2},
                 {"num_experts", 4},
                 {"num_layers", 1}};
    Stored weight1 = {.shape = {kHidden, 4}, .elements = {}};
    Stored weight2 = {.shape = {2, kHidden}, .elements = {}};
    for (int expert = 2 * expert_rank; expert < 2 * expert_rank + 2; ++expert) {
      for (int hidden = 0; hidden < kHidden; ++hidden) {
        for (const int half : {0, 1}) {
          weight1.elements.push_back(Fc1(expert, half, tensor, hidden));
        }
        weight2.elements.push_back(Fc2(expert, tensor, hidden));
      }
    }
    file.model = {{kWeight1, std::move(weight1)}, {kWeight2, std::move(weight2)}};
    return file;
  }
  // Opens files that ranks save after `change`.
  Result<std::unique_ptr<CheckpointSource>> OpenExperts(
      const std::function<void(RankFile&)>& change = [](RankFile&) {}) {
    for (int tensor = 0; tensor < 2; ++tensor) {
      for (int expert_rank = 0; expert_rank < 2; ++expert_rank) {
        RankFile file = ExpertsOf(tensor, expert_rank);
        change(file);
        const Path directory = Path("/e") / NameOf(tensor, expert_rank);
        CKPT_RETURN_IF_ERROR(storage_->RemoveAll(directory));
        CKPT_RETURN_IF_ERROR(storage_->MakeDirectories(directory));
        CKPT_RETURN_IF_ERROR(
            WriteSmallFile(*storage_, directory / "model_optim_rng.pt", Encode(file)));
      }
    }
    return OpenSource(*storage_, "/e");
  }
};

TEST_F(GroupedExpertsTest, AreTheTensorsOfEachExpert) {
  const auto source = OpenExperts();
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT((*source)->index().tensors(), SizeIs(8));
  for (int expert = 0; expert < 4; ++expert) {
    std::vector<int> fc1;  // [gate and up of both tensor ranks, hidden]
    for (const int half : {0, 1}) {
      for (const int tensor : {0, 1}) {
        for (int h = 0; h < kHidden; ++h) fc1.push_back(Fc1(expert, half, tensor, h));
      }
    }
    std::vector<int> fc2;  // [hidden, both tensor ranks]
    for (int h = 0; h < kHidden; ++h) {
      for (const int tensor : {0, 1}) fc2.push_back(Fc2(expert, tensor, h));
    }
    const std::string prefix = "model.decoder.layers.0.mlp.experts.linear_";
    const std::string number = std::to_string(expert);
    EXPECT_THAT(Elements(**source, prefix + "fc1.weight" + number), IsOkAndHolds(fc1));
    EXPECT_THAT(Elements(**source, prefix + "fc2.weight" + number), IsOkAndHolds(fc2));
  }
}

TEST_F(GroupedExpertsTest, OfAnotherNumberAreRefusedByName) {
  const auto source = OpenExperts([](RankFile& file) {
    file.model[kWeight2] = {{3, 1}, {1, 2, 3}};
  });
  ASSERT_THAT(source, IsOk());
  EXPECT_EQ(OnlyError(**source).kind, ErrorKind::kShapeMismatch);
  EXPECT_EQ(OnlyError(**source).tensor, "model." + std::string(kWeight2));
  EXPECT_THAT(OnlyError(**source).file, HasSubstr(NameOf(0, 0)));
  EXPECT_THAT(Elements(**source, "model.decoder.layers.0.mlp.experts.linear_fc1.weight3"), IsOk());
}

// A rank's array has the shape of whole experts, and is parts of all of them.
TEST_F(GroupedExpertsTest, WhoseRanksHavePartsOfEachAreRefused) {
  const auto source = OpenExperts([](RankFile& file) { file.flags.push_back("moe_extended_tp"); });
  ASSERT_THAT(source, IsOk());
  for (const char* const name : {kWeight1, kWeight2}) {
    EXPECT_THAT((*source)->index().CheckDeliverable("model." + std::string(name)),
                FailsWith(ErrorKind::kUnsupported));
  }
}

// They are equal in all ranks, which says nothing: half of the experts would be lost.
TEST_F(GroupedExpertsTest, OfAnUnknownNameAreRefusedByName) {
  const std::string unknown = "decoder.layers.0.mlp.experts.linear_fc1.weight";
  const auto source = OpenExperts([&](RankFile& file) {
    file.model = {{unknown, {{1, 2}, {1, 2}}}};
  });
  ASSERT_THAT(source, IsOk());
  EXPECT_EQ(OnlyError(**source).kind, ErrorKind::kUnsupported);
  EXPECT_EQ(OnlyError(**source).tensor, "model." + unknown);
  EXPECT_THAT(OnlyError(**source).hint, HasSubstr("torch_dist"));
  EXPECT_FALSE(Elements(**source, "model." + unknown).ok());
}

TEST_F(MpRankTest, RefusesWhatIsNoWholeModel) {
  ASSERT_THAT(storage_->RemoveAll("/c/mp_rank_01_001"), IsOk());
  EXPECT_THAT(Open(), FailsWith(ErrorKind::kMissingFile));
  RankFile file = FileOf(1, 1);
  Write(1, 1, file);
  ASSERT_THAT(Open(), IsOk());
  file = FileOf(0, 0);
  file.args["num_layers"] = 3;
  Write(0, 0, file);
  EXPECT_THAT(Open(), FailsWith(ErrorKind::kBadMetadata));
  file = FileOf(0, 0);
  file.version = 2.0;
  Write(0, 0, file);
  EXPECT_THAT(Open(), FailsWith(ErrorKind::kUnsupported));
  file = FileOf(0, 0);
  file.args.erase("tensor_model_parallel_size");
  Write(0, 0, file);
  EXPECT_THAT(Open(), FailsWith(ErrorKind::kMissing));
}

}  // namespace
}  // namespace ckpt::mp_rank
