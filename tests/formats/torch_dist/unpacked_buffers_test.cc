// Buffers of a distributed optimizer, which do not say where a parameter lies in them.
#include "formats/torch_dist/internal/unpacked_buffers.h"

#include <cctype>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/read.h"
#include "core/checkpoint/validate.h"
#include "core/io/posix_storage.h"
#include "core/io/storage.h"
#include "formats/torch_dist/internal/source.h"
#include "tests/formats/torch_dist/iteration_of.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tests/testing/stated_source.h"

namespace ckpt::torch_dist {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

constexpr std::uint64_t kBudget = std::uint64_t{1} << 20;

// Where Megatron put a parameter, as the golden's account says.
struct StoredPart {
  std::string bucket;  // with its field
  std::string weight;
  Dims offsets;
  std::int64_t elems = 0;
  std::string sha256;
};

// "decoder.layers.mlp.linear_fc1.weight at [1, 0, 0]"
std::pair<std::string, Dims> ParsePlace(const std::string& text) {
  const std::size_t at = text.find(" at [");
  Dims offsets;
  std::string number;
  for (const char c : text.substr(at + 5)) {
    if (c >= '0' && c <= '9') {
      number += c;
    } else if (!number.empty()) {
      offsets.push_back(std::stoll(number));
      number.clear();
    }
  }
  return {text.substr(0, at), offsets};
}

std::vector<StoredPart> StoredParts(const Path& directory) {
  std::vector<StoredPart> parts;
  const auto text = ReadSmallFile(PosixStorage(), directory / "expected.json", 256ULL << 20);
  const auto json = JsonDocument::Parse(text.value(), "expected.json");
  const JsonCursor tensors = json->root().At("tensors").value();
  for (const auto& [key, tensor] : tensors.Members().value()) {
    const auto listed = tensor.Find("parts");
    if (!listed) continue;
    for (const JsonCursor& part : listed->Items().value()) {
      const auto range = part.At("range").value().Int64Array().value();
      auto [weight, offsets] = ParsePlace(part.At("param").value().Text().value());
      parts.push_back({.bucket = std::string(key),
                       .weight = std::move(weight),
                       .offsets = std::move(offsets),
                       .elems = range[1] - range[0],
                       .sha256 = part.At("sha256").value().Text().value()});
    }
  }
  return parts;
}

// The part's elements in the view, in the order of the rank's memory.
Bytes ReadPart(const CheckpointSource& view, const StoredPart& part) {
  const std::string field = part.bucket.substr(part.bucket.rfind('.') + 1);
  const GlobalTensor* const weight = view.index().FindTensor(part.weight);
  const GlobalTensor* const state =
      view.index().FindTensor(fmt::format("optimizer.state.{}.{}", field, part.weight));
  if (weight == nullptr || state == nullptr) return {};
  Bytes bytes;
  for (const Chunk& chunk : view.index().chunks(*weight)) {
    Box box = view.index().box(chunk);
    if (box.offsets != part.offsets) continue;
    const auto append = [&] {
      Bytes read(static_cast<std::uint64_t>(NumElements(box.sizes)) * sizeof(float));
      EXPECT_THAT(ReadBox(view, *state, box, read, kBudget), IsOk());
      Append(read, bytes);
    };
    append();
    if (NumElements(box.sizes) == part.elems) break;
    // Gate and up: the other half of the rows.
    const std::size_t rows = box.sizes.size() - 2;
    box.offsets[rows] += weight->shape[rows] / 2;
    append();
    break;
  }
  return bytes;
}

std::vector<std::string> CasesWithBuffers() {
  std::vector<std::string> names = testing::GoldenCases("torch_dist");
  std::erase_if(names, [](const std::string& name) {
    return name.find("dp_reshardable") == std::string::npos;
  });
  return names;
}

class UnpackedGoldenTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, UnpackedGoldenTest, ::testing::ValuesIn(CasesWithBuffers()),
                         [](const auto& golden) { return golden.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(UnpackedGoldenTest);

TEST_P(UnpackedGoldenTest, FindsEveryParameterWhereMegatronPutIt) {
  const testing::GoldenCase golden = testing::LoadGolden("torch_dist", GetParam());
  auto source = Source::Open(PosixStorage(), testing::IterationOf(golden));
  ASSERT_THAT(source, IsOk());
  const auto view = UnpackBuffers(std::shared_ptr<const CheckpointSource>(std::move(*source)));
  ASSERT_THAT(view, IsOk());
  const std::vector<StoredPart> parts = StoredParts(golden.directory);
  EXPECT_FALSE(parts.empty());
  for (const StoredPart& part : parts) {
    SCOPED_TRACE(part.bucket + " " + part.weight);
    EXPECT_EQ(HashHex(HashAlgorithm::kSha256, ReadPart(**view, part)), part.sha256);
  }
  for (const GlobalTensor& tensor : (*view)->index().tensors()) {
    EXPECT_THAT(tensor.key, ::testing::Not(HasSubstr("optimizer.distributed.")));
  }
  EXPECT_TRUE(ValidateIndex(**view).empty());
}

// A small model in memory, and a buffer of one bucket.
class UnpackedBuffersTest : public ::testing::Test {
 protected:
  static Bytes Floats(const std::vector<float>& values) {
    Bytes bytes(values.size() * sizeof(float));
    for (std::size_t i = 0; i < values.size(); ++i) {
      StoreLe(values[i], bytes.data() + i * sizeof(float));
    }
    return bytes;
  }
  static std::vector<float> Repeated(float value) { return std::vector<float>(64, value); }

  void AddWeight(const std::string& key, const std::vector<float>& values) {
    const std::size_t layers = key.find(".layers.");
    const bool is_stacked = layers != std::string::npos && std::isdigit(key[layers + 8]) == 0;
    const auto count = static_cast<std::int64_t>(values.size());
    tensors_.push_back(
        {key, DType::kFloat32, is_stacked ? Dims{1, count} : Dims{count}, Floats(values)});
  }
  // Exact values of a group's parameters, the last one first, and moments that count elements.
  void AddBucket(const std::vector<std::vector<float>>& parameters, int group = 0) {
    std::vector<float> exact;
    for (const auto& values : parameters) exact.insert(exact.end(), values.begin(), values.end());
    std::vector<float> moment(exact.size());
    for (std::size_t i = 0; i < moment.size(); ++i) moment[i] = static_cast<float>(i);
    const auto count = static_cast<std::int64_t>(exact.size());
    tensors_.push_back({BucketOf(group) + "param", DType::kFloat32, {count}, Floats(exact)});
    tensors_.push_back({BucketOf(group) + "exp_avg", DType::kFloat32, {count}, Floats(moment)});
  }
  Result<std::shared_ptr<const CheckpointSource>> Unpack() {
    auto source = MakeMemorySource(tensors_);
    EXPECT_THAT(source, IsOk());
    return UnpackBuffers(std::shared_ptr<const CheckpointSource>(std::move(*source)));
  }
  // The same, with buckets in chunks that end at these elements.
  Result<std::shared_ptr<const CheckpointSource>> UnpackChunks(
      const std::vector<std::int64_t>& ends) {
    IndexBuilder builder;
    std::vector<std::shared_ptr<const ReadableFile>> files;
    const EncodingId raw = builder.AddEncoding("raw");
    for (const MemoryTensor& tensor : tensors_) {
      const FileId file = builder.AddFile(tensor.key);
      files.push_back(MakeMemoryFile(tensor.key, tensor.values));
      builder.AddTensor(tensor.key, tensor.dtype, tensor.shape);
      if (!tensor.key.starts_with("optimizer.")) {
        builder.AddChunk(WholeBox(tensor.shape), file, raw, 0, tensor.values.size());
        continue;
      }
      std::int64_t begin = 0;
      for (const std::int64_t end : ends) {
        builder.AddChunk(Box{.offsets = {begin}, .sizes = {end - begin}}, file, raw,
                         static_cast<std::uint64_t>(begin) * sizeof(float),
                         static_cast<std::uint64_t>(end - begin) * sizeof(float));
        begin = end;
      }
    }
    return UnpackBuffers(MakePartialSource(builder.Build().value(), std::move(files)).value());
  }
  // With these arguments of the run, as JSON.
  Result<std::shared_ptr<const CheckpointSource>> UnpackWith(const std::string& args) {
    const std::string common = fmt::format(
        R"({{"args": {{"$object": {{"class": "argparse.Namespace", "state": {}}}}}}})", args);
    return UnpackBuffers(std::make_shared<testing::StatedSource>(
        tensors_, testing::StatedObjects{{std::string(kCommonKey), common}}));
  }

  // Weights of experts, of elements that count, and what GroupedMLP makes of them on each of
  // `ranks`: [experts, columns, rows], with the rank's rows of gate and up, or its columns.
  void AddExperts(const std::string& key, const Dims& shape, float first) {
    std::vector<float> values(static_cast<std::size_t>(NumElements(shape)));
    std::iota(values.begin(), values.end(), first);
    tensors_.push_back({key, DType::kFloat32, shape, Floats(values)});
  }
  // With room behind it, as before another parameter.
  static std::vector<float> ArrayOf(float first, const Dims& shape,
                                    const std::vector<std::int64_t>& rows,
                                    const std::vector<std::int64_t>& columns) {
    std::vector<float> array;
    for (std::int64_t expert = 0; expert < shape[1]; ++expert) {
      for (const std::int64_t column : columns) {
        for (const std::int64_t row : rows) {
          const std::int64_t elem = (expert * shape[2] + row) * shape[3] + column;
          array.push_back(first + static_cast<float>(elem));
        }
      }
    }
    array.resize((array.size() + 63) / 64 * 64, 0);
    return array;
  }
  // What is kept of one element.
  static float MomentAt(const CheckpointSource& view, const std::string& weight, const Dims& at) {
    const GlobalTensor* const moment = view.index().FindTensor("optimizer.state.exp_avg." + weight);
    if (moment == nullptr) return -1;
    Bytes bytes(sizeof(float));
    const Box box = {.offsets = at, .sizes = Dims(at.size(), 1)};
    EXPECT_THAT(ReadBox(view, *moment, box, bytes, kBudget), IsOk());
    return LoadLe<float>(bytes.data());
  }
  // The first element of what is kept for a weight: its place in the buffer.
  static float PlaceOfWeight(const CheckpointSource& view, const std::string& weight) {
    const GlobalTensor* const moment = view.index().FindTensor("optimizer.state.exp_avg." + weight);
    if (moment == nullptr) return -1;
    Bytes bytes(static_cast<std::uint64_t>(NumElements(moment->shape)) * sizeof(float));
    EXPECT_THAT(ReadBox(view, *moment, WholeBox(moment->shape), bytes, kBudget), IsOk());
    return LoadLe<float>(bytes.data());
  }

  static std::string BucketOf(int group) {
    return fmt::format(
        "optimizer.distributed.dp_group_idx_{}.gbuf_idx_0.dtype_(torch.float32, torch.float32)."
        "bucket_idx_0.",
        group);
  }

  std::vector<MemoryTensor> tensors_;
};

constexpr const char* kQueryNorm = "decoder.layers.self_attention.q_layernorm.weight";
constexpr const char* kKeyNorm = "decoder.layers.self_attention.k_layernorm.weight";
constexpr const char* kNormBefore = "decoder.layers.self_attention.linear_qkv.layer_norm_weight";
constexpr const char* kProjection = "decoder.layers.self_attention.linear_proj.weight";
constexpr const char* kQueries = "decoder.layers.self_attention.linear_qkv.weight";

TEST_F(UnpackedBuffersTest, TellsEqualVectorsApartByTheOrderOfModules) {
  AddWeight(kQueryNorm, Repeated(1));
  AddWeight(kKeyNorm, Repeated(1));
  AddWeight("embedding.word_embeddings.weight", Repeated(2));
  AddWeight("output_layer.weight", Repeated(3));
  AddBucket({Repeated(3), Repeated(1), Repeated(1), Repeated(2)});
  const auto view = Unpack();
  ASSERT_THAT(view, IsOk());
  EXPECT_EQ(PlaceOfWeight(**view, kKeyNorm), 64);
  EXPECT_EQ(PlaceOfWeight(**view, kQueryNorm), 128);
}

// Transformer Engine's projection has the norm before it, which lies behind the attention's output.
TEST_F(UnpackedBuffersTest, KnowsBothPlacesOfTheNormBeforeTheAttention) {
  for (const bool in_projection : {false, true}) {
    tensors_.clear();
    AddWeight(kNormBefore, Repeated(1));
    AddWeight(kQueryNorm, Repeated(1));
    AddWeight(kProjection, Repeated(2));
    AddWeight(kQueries, Repeated(3));
    if (in_projection) {
      AddBucket({Repeated(1), Repeated(3), Repeated(1), Repeated(2)});
    } else {
      AddBucket({Repeated(1), Repeated(3), Repeated(2), Repeated(1)});
    }
    const auto view = Unpack();
    ASSERT_THAT(view, IsOk());
    EXPECT_EQ(PlaceOfWeight(**view, kQueryNorm), 0);
    EXPECT_EQ(PlaceOfWeight(**view, kNormBefore), in_projection ? 128 : 192);
  }
}

// Nothing lies before the first norm of a later stage, but its layer is known by its matrices.
TEST_F(UnpackedBuffersTest, TakesVectorsOfLayersThatAreThere) {
  const auto of_layer = [](int layer, const std::string& name) {
    return fmt::format("decoder.layers.{}.{}", layer, name);
  };
  for (int layer = 0; layer < 2; ++layer) {
    AddWeight(of_layer(layer, "input_layernorm.weight"), Repeated(1));
    AddWeight(of_layer(layer, "self_attention.linear_proj.weight"),
              Repeated(static_cast<float>(2 + layer)));
    AddWeight(of_layer(layer, "pre_mlp_layernorm.weight"), Repeated(1));
  }
  AddBucket({Repeated(1), Repeated(2), Repeated(1)}, 0);
  AddBucket({Repeated(1), Repeated(3), Repeated(1)}, 1);
  const auto view = Unpack();
  ASSERT_THAT(view, IsOk());
  for (int layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(PlaceOfWeight(**view, of_layer(layer, "pre_mlp_layernorm.weight")), 0);
    EXPECT_EQ(PlaceOfWeight(**view, of_layer(layer, "input_layernorm.weight")), 128);
  }
}

// A last stage without layers has the copy of a tied embedding alone.
TEST_F(UnpackedBuffersTest, KnowsTheCopyOfATiedEmbedding) {
  AddWeight("embedding.word_embeddings.weight", Repeated(2));
  AddBucket({Repeated(2)});
  const auto view = Unpack();
  ASSERT_THAT(view, IsOk());
  EXPECT_EQ(PlaceOfWeight(**view, "embedding.word_embeddings.weight"), 0);
}

constexpr const char* kExperts1 = "decoder.layers.mlp.experts.experts.linear_fc1.weight";
constexpr const char* kExperts2 = "decoder.layers.mlp.experts.experts.linear_fc2.weight";
const Dims kShape1 = {1, 2, 8, 3};  // [layers, experts, gate and up, hidden]
const Dims kShape2 = {1, 2, 3, 4};

constexpr const char* kOneArray =
    R"({"moe_grouped_gemm": true, "moe_use_legacy_grouped_gemm": true, )"
    R"("transformer_impl": "transformer_engine", "swiglu": true, )"
    R"("tensor_model_parallel_size": 2})";

TEST_F(UnpackedBuffersTest, KnowsExpertsThatAreOneArray) {
  AddExperts(kExperts1, kShape1, 1000);
  AddExperts(kExperts2, kShape2, 2000);
  AddBucket(
      {ArrayOf(2000, kShape2, {0, 1, 2}, {0, 1}), ArrayOf(1000, kShape1, {0, 1, 4, 5}, {0, 1, 2})},
      0);
  AddBucket(
      {ArrayOf(2000, kShape2, {0, 1, 2}, {2, 3}), ArrayOf(1000, kShape1, {2, 3, 6, 7}, {0, 1, 2})},
      1);
  const auto view = UnpackWith(kOneArray);
  ASSERT_THAT(view, IsOk());
  // Moments count the elements of a buffer, whose second parameter begins at 64.
  for (std::int64_t expert = 0; expert < 2; ++expert) {
    for (std::int64_t column = 0; column < 3; ++column) {
      for (std::int64_t row = 0; row < 8; ++row) {
        const std::int64_t in_rank = row % 2 + row / 4 * 2;
        EXPECT_EQ(MomentAt(**view, kExperts1, {0, expert, row, column}),
                  static_cast<float>(64 + (expert * 3 + column) * 4 + in_rank));
      }
    }
    for (std::int64_t column = 0; column < 4; ++column) {
      for (std::int64_t row = 0; row < 3; ++row) {
        EXPECT_EQ(MomentAt(**view, kExperts2, {0, expert, row, column}),
                  static_cast<float>((expert * 2 + column % 2) * 3 + row));
      }
    }
  }
  // They are no boxes in C order, of which others make buffers.
  EXPECT_TRUE(BuffersOf(**view).empty());
  EXPECT_TRUE(PartsOfBuffers(**view).empty());
}

// A chunk of several experts shows it, where no argument does.
TEST_F(UnpackedBuffersTest, KnowsOneArrayOfExpertsByItsChunk) {
  AddExperts(kExperts2, kShape2, 2000);
  AddBucket({ArrayOf(2000, kShape2, {0, 1, 2}, {0, 1, 2, 3})});
  const auto view = Unpack();
  ASSERT_THAT(view, IsOk());
  EXPECT_TRUE(ValidateIndex(**view).empty());
  EXPECT_EQ(MomentAt(**view, kExperts2, {0, 1, 2, 3}), 23);
  EXPECT_EQ(MomentAt(**view, kExperts2, {0, 0, 1, 2}), 7);
}

TEST_F(UnpackedBuffersTest, KnowsOneArrayOfExpertsThatDataParallelRanksDivide) {
  AddExperts(kExperts2, kShape2, 2000);
  AddBucket({ArrayOf(2000, kShape2, {0, 1, 2}, {0, 1, 2, 3})});
  for (std::int64_t cut = 1; cut < 24; ++cut) {
    SCOPED_TRACE(cut);
    const auto view = UnpackChunks({cut, 24, 64});
    ASSERT_THAT(view, IsOk());
    EXPECT_TRUE(ValidateIndex(**view).empty());
    for (std::int64_t elem = 0; elem < 24; ++elem) {
      const Dims at = {0, elem / 12, elem % 3, elem / 3 % 4};
      EXPECT_EQ(MomentAt(**view, kExperts2, at), static_cast<float>(elem));
    }
  }
}

// Of later versions, which have no such class.
TEST_F(UnpackedBuffersTest, KnowsExpertsThatAreNoArrayWhateverArgumentsSay) {
  AddExperts(kExperts2, kShape2, 2000);
  std::vector<float> second(64, 0);
  std::iota(second.begin(), second.begin() + 12, 2012.0F);
  std::vector<float> first(64, 0);
  std::iota(first.begin(), first.begin() + 12, 2000.0F);
  AddBucket({second, first});
  const auto view = UnpackWith(R"({"moe_grouped_gemm": true, "transformer_impl": "local", )"
                               R"("tensor_model_parallel_size": 1})");
  ASSERT_THAT(view, IsOk());
  EXPECT_EQ(MomentAt(**view, kExperts2, {0, 0, 0, 1}), 65);
  EXPECT_EQ(MomentAt(**view, kExperts2, {0, 1, 0, 1}), 1);
  EXPECT_FALSE(BuffersOf(**view).empty());
}

TEST_F(UnpackedBuffersTest, RefusesExpertsThatAreEqualEitherWay) {
  tensors_.push_back(
      {kExperts2, DType::kFloat32, {1, 2, 8, 8}, Floats(std::vector<float>(128, 1))});
  AddBucket({Repeated(1), Repeated(1)});
  const auto view = Unpack();
  ASSERT_THAT(view, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(view.status().first().actual, HasSubstr("as one array of experts"));
}

TEST_F(UnpackedBuffersTest, NamesAnExpertsOwnKeyBesideOneArray) {
  const std::string key = "decoder.layers.0.mlp.experts.experts.1.linear_fc2.weight";
  AddExperts(key, kShape2, 2000);
  AddBucket({ArrayOf(2000, kShape2, {0, 1, 2}, {0, 1, 2, 3})});
  const auto view = UnpackWith(kOneArray);
  ASSERT_THAT(view, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(view.status().first().tensor, key);
  EXPECT_THAT(view.status().first().actual, HasSubstr("singleton_local_shards"));
}

TEST_F(UnpackedBuffersTest, RefusesEqualVectorsOfUnknownOrder) {
  AddWeight("decoder.layers.mixer.a.weight", Repeated(1));
  AddWeight("decoder.layers.mixer.b.weight", Repeated(1));
  AddBucket({Repeated(1), Repeated(1)});
  const auto view = Unpack();
  ASSERT_THAT(view, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(view.status().first().message, HasSubstr("two parameters fit"));
  EXPECT_THAT(view.status().first().actual, HasSubstr("mixer.a.weight"));
}

TEST_F(UnpackedBuffersTest, RefusesAnotherOrderThanThatOfModules) {
  AddWeight("embedding.word_embeddings.weight", Repeated(2));
  AddWeight("output_layer.weight", Repeated(3));
  AddBucket({Repeated(2), Repeated(3)});
  EXPECT_THAT(Unpack(), FailsWith(ErrorKind::kUnsupported));
}

TEST_F(UnpackedBuffersTest, NamesValuesThatRoundToNoWeight) {
  AddWeight("embedding.word_embeddings.weight", Repeated(2));
  AddWeight("output_layer.weight", Repeated(3));
  AddBucket({Repeated(3), Repeated(2.5)});
  const auto view = Unpack();
  ASSERT_THAT(view, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(view.status().first().actual, HasSubstr("element 64 of bucket 0"));
}

TEST_F(UnpackedBuffersTest, RefusesABufferWithoutExactValues) {
  AddWeight("embedding.word_embeddings.weight", Repeated(2));
  tensors_.push_back({BucketOf(0) + "exp_avg", DType::kFloat32, {64}, Floats(Repeated(0))});
  EXPECT_THAT(Unpack(), FailsWith(ErrorKind::kMissing));
}

TEST_F(UnpackedBuffersTest, RefusesFieldsOfAnotherSize) {
  AddWeight("embedding.word_embeddings.weight", Repeated(2));
  AddBucket({Repeated(2)});
  tensors_.back().shape = {32};
  tensors_.back().values.resize(32 * sizeof(float));
  EXPECT_THAT(Unpack(), FailsWith(ErrorKind::kBadMetadata));
}

TEST_F(UnpackedBuffersTest, LeavesACheckpointWithoutBuffersAsItIs) {
  AddWeight("embedding.word_embeddings.weight", Repeated(2));
  const std::shared_ptr<const CheckpointSource> source = MakeMemorySource(tensors_).value();
  const auto view = UnpackBuffers(source);
  ASSERT_THAT(view, IsOk());
  EXPECT_EQ(*view, source);
}

}  // namespace
}  // namespace ckpt::torch_dist
