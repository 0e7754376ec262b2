// Exact weights of which a checkpoint has the lower halves alone are not taken for weights, and
// those that round to other weights are named.
#include "formats/torch_dist/internal/main_weights.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "core/base/units.h"
#include "core/checkpoint/memory_source.h"
#include "core/tensor/cast.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_dist {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::vector<float> kWeights = {0.1F, -0.2F, 3.25F, 0.003F, 1.0F, -7.7F};

enum class Kept : std::uint8_t { kExact, kLowerHalf };

// Weights, and what the optimizer keeps of them.
class StoredPairs {
 public:
  // In bfloat16, the upper half.
  void Add(const std::string& key, const std::vector<float>& weights, Kept kept) {
    MemoryTensor weight{.key = key, .dtype = DType::kBfloat16, .shape = {2, 3}, .values = {}};
    MemoryTensor main{.key = KeyOf(key), .shape = {2, 3}, .values = {}};
    for (const float exact : weights) {
      // Rounded up where the lower half is a negative number.
      const auto bits = std::bit_cast<std::uint32_t>(exact);
      const auto lower = static_cast<std::int16_t>(bits & 0xffffU);
      const auto upper = static_cast<std::uint16_t>((bits >> 16) + (lower < 0 ? 1 : 0));
      AppendLe(upper, weight.values);
      AppendLe(kept == Kept::kExact ? exact : static_cast<float>(lower), main.values);
    }
    Add(std::move(weight), std::move(main));
  }
  // Exact values, and the weights' own, which are rounded to `dtype`.
  void Add(const std::string& key, Dims shape, const std::vector<float>& exact, DType dtype,
           const std::vector<float>& weights) {
    MemoryTensor main{.key = KeyOf(key), .shape = shape, .values = {}};
    MemoryTensor weight{.key = key, .dtype = dtype, .shape = std::move(shape), .values = {}};
    for (const float value : exact) AppendLe(value, main.values);
    for (const float value : weights) {
      switch (dtype) {
        case DType::kBfloat16:
          AppendLe(ToBf16Bits(value), weight.values);
          break;
        case DType::kFloat16:
          AppendLe(ToFp16Bits(value), weight.values);
          break;
        case DType::kFloat32:
          AppendLe(value, weight.values);
          break;
        default:
          weight.values.push_back(std::byte{0x38});
      }
    }
    Add(std::move(weight), std::move(main));
  }
  void AddTensor(MemoryTensor tensor) { tensors_.push_back(std::move(tensor)); }

  Result<std::vector<Problem>> Check(RunDetail detail = RunDetail::kWhole) const {
    const auto source = MakeMemorySource(tensors_);
    EXPECT_THAT(source, IsOk());
    return CheckAreExact(**source, main_weights_, detail);
  }

  static std::string KeyOf(const std::string& weight) { return "optimizer.state.param." + weight; }

 private:
  void Add(MemoryTensor weight, MemoryTensor main) {
    main_weights_[main.key] = weight.key;
    tensors_.push_back(std::move(weight));
    tensors_.push_back(std::move(main));
  }

  std::vector<MemoryTensor> tensors_;
  std::map<std::string, std::string> main_weights_;
};

Result<std::vector<Problem>> Check(const std::vector<float>& weights, Kept kept) {
  StoredPairs run;
  run.Add("w", weights, kept);
  return run.Check();
}

std::vector<float> Rising(std::size_t count) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(0.001F * static_cast<float>(i + 1));
  return values;
}

TEST(MainWeightsTest, AreWhatRoundsToTheWeights) {
  for (const std::vector<float>& weights :
       {kWeights, std::vector<float>{0, 0, 0, 0, 0, 0}, std::vector<float>{1, 1, 1, 2, -3, 1}}) {
    const auto warnings = Check(weights, Kept::kExact);
    ASSERT_THAT(warnings, IsOk());
    EXPECT_THAT(*warnings, IsEmpty());
  }
}

TEST(MainWeightsTest, LowerHalvesAreRefusedByName) {
  const auto refused = Check(kWeights, Kept::kLowerHalf);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(refused.status().first().tensor, "optimizer.state.param.w");
  EXPECT_THAT(Check({1, 1, 1, 1, 1, 1}, Kept::kLowerHalf), FailsWith(ErrorKind::kUnsupported));
}

// An optimizer keeps all weights in one way: zeros beside exact values are damage.
TEST(MainWeightsTest, WholeNumbersBesideExactValuesAreNoLowerHalves) {
  StoredPairs run;
  run.Add("a", kWeights, Kept::kExact);
  run.Add("b", {6}, std::vector<float>(6, 0.0F), DType::kBfloat16, kWeights);
  const auto warnings = run.Check();
  ASSERT_THAT(warnings, IsOk());
  EXPECT_THAT(*warnings, ElementsAre(Field(&Problem::tensor, "optimizer.state.param.b")));
  // No weight is as large as a half.
  StoredPairs other;
  other.Add("a", kWeights, Kept::kExact);
  other.Add("b", {6}, {23117, 2, 3, 4, 5, 6}, DType::kBfloat16, kWeights);
  EXPECT_THAT(other.Check(), FailsWith(ErrorKind::kUnsupported));
  // A weight in float32 has no halves.
  StoredPairs halves;
  halves.Add("a", {6}, kWeights, DType::kFloat32, kWeights);
  halves.Add("b", kWeights, Kept::kLowerHalf);
  EXPECT_THAT(halves.Check(), FailsWith(ErrorKind::kUnsupported));
}

TEST(MainWeightsTest, NamesAnExactValueThatRoundsToAnotherWeight) {
  for (const RunDetail detail : {RunDetail::kWhole, RunDetail::kToResume}) {
    StoredPairs run;
    std::vector<float> exact = Rising(6);
    exact[2] = 0.75F;
    run.Add("w", {2, 3}, exact, DType::kBfloat16, {0.001F, 0.002F, -0.5F, 0.004F, 0.005F, 0.006F});
    const auto warnings = run.Check(detail);
    ASSERT_THAT(warnings, IsOk());
    ASSERT_THAT(*warnings, SizeIs(1));
    const Problem& warning = warnings->front();
    EXPECT_EQ(warning.kind, ErrorKind::kValueMismatch);
    EXPECT_EQ(warning.severity, Severity::kWarning);
    EXPECT_EQ(warning.message,
              "the exact value does not round to the weight; a run goes on with the exact value");
    EXPECT_EQ(warning.tensor, "optimizer.state.param.w");
    EXPECT_EQ(warning.expected, "-0.5 at [0, 2]");
    EXPECT_EQ(warning.actual, "0.75");
    EXPECT_EQ(warning.hint, kTakeWeightsAlone);
  }
}

// The first elements and the last: of the layers of a stacked weight, the first and the last.
TEST(MainWeightsTest, LooksAtBothEnds) {
  constexpr std::size_t kNumElems = 3 * 2 * 100;
  const std::vector<float> weights = Rising(kNumElems);
  const auto check = [&](std::size_t changed) {
    std::vector<float> exact = weights;
    exact[changed] = 100;
    StoredPairs run;
    run.Add("w", {3, 2, 100}, exact, DType::kBfloat16, weights);
    return run.Check();
  };
  const auto first = check(31);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(*first, SizeIs(1));
  EXPECT_THAT(first->front().expected, ::testing::EndsWith(" at [0, 0, 31]"));
  for (const std::size_t from_end : {1U, 32U}) {
    const auto last = check(kNumElems - from_end);
    ASSERT_THAT(last, IsOk());
    ASSERT_THAT(*last, SizeIs(1)) << from_end;
    EXPECT_THAT(last->front().expected,
                ::testing::EndsWith(fmt::format(" at [2, 1, {}]", 100 - from_end)));
  }
}

TEST(MainWeightsTest, ComparesWhatWeightsOfAnyDtypeRoundTo) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> exact = {nan, -0.0F, 1e6F, 0.1F};
  for (const DType dtype : {DType::kBfloat16, DType::kFloat16, DType::kFloat32}) {
    StoredPairs same;
    same.Add("w", {4}, exact, dtype, {nan, 0.0F, 1e6F, 0.1F});
    const auto none = same.Check();
    ASSERT_THAT(none, IsOk());
    EXPECT_THAT(*none, IsEmpty()) << DTypeName(dtype);
    StoredPairs other;
    other.Add("w", {4}, exact, dtype, {0.0F, 0.0F, 1e6F, 0.1F});
    const auto warnings = other.Check();
    ASSERT_THAT(warnings, IsOk());
    ASSERT_THAT(*warnings, SizeIs(1)) << DTypeName(dtype);
    EXPECT_EQ(warnings->front().actual, "nan");
    EXPECT_EQ(warnings->front().expected, "0 at [0]");
  }
  StoredPairs scalar;
  scalar.Add("w", {}, {0.5F}, DType::kBfloat16, {0.25F});
  const auto warnings = scalar.Check();
  ASSERT_THAT(warnings, IsOk());
  EXPECT_THAT(*warnings, ElementsAre(Field(&Problem::expected, "0.25 at []")));
}

// As the weights of a run become float16 or float32 that were bfloat16.
TEST(MainWeightsTest, WeightsMayHaveBeenRoundedBefore) {
  const std::vector<float> once = {FromBf16Bits(ToBf16Bits(0.1F)), FromBf16Bits(ToBf16Bits(0.7F))};
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    StoredPairs run;
    run.Add("w", {2}, {0.1F, 0.7F}, dtype, once);
    const auto none = run.Check();
    ASSERT_THAT(none, IsOk());
    EXPECT_THAT(*none, IsEmpty()) << DTypeName(dtype);
    StoredPairs other;
    other.Add("w", {2}, {0.1F, 0.7F}, dtype, {once[0], 0.71F});
    const auto warnings = other.Check();
    ASSERT_THAT(warnings, IsOk());
    EXPECT_THAT(*warnings, SizeIs(1)) << DTypeName(dtype);
  }
}

// Those of eight bits are rounded by scales.
TEST(MainWeightsTest, DoesNotCompareWeightsThatRoundOtherwise) {
  StoredPairs run;
  run.Add("fp8", {2}, {0.3F, 0.7F}, DType::kFloat8E4m3fn, {1, 1});
  run.Add("scaled", {2}, {0.3F, 0.7F}, DType::kBfloat16, {1, 1});
  run.AddTensor({.key = "scaled_scale_inv", .shape = {1}, .values = Bytes(4)});
  run.Add("empty", {0, 4}, {}, DType::kBfloat16, {});
  const auto warnings = run.Check();
  ASSERT_THAT(warnings, IsOk());
  EXPECT_THAT(*warnings, IsEmpty());
}

TEST(MainWeightsTest, NamesTheFirstOfMany) {
  StoredPairs run;
  for (int i = 10; i < 30; ++i) {
    run.Add(fmt::format("w{}", i), {2}, {0.3F, 0.7F}, DType::kBfloat16, {1, 1});
  }
  const auto warnings = run.Check();
  ASSERT_THAT(warnings, IsOk());
  ASSERT_THAT(*warnings, SizeIs(9));
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ((*warnings)[i].tensor, fmt::format("optimizer.state.param.w1{}", i));
  }
  EXPECT_EQ(warnings->back().message, "the exact values of 12 more weights do not round to them");
}

// Notes how much its chunks, which are large, are asked for. All elements are zeros.
class LargeSource final : public CheckpointSource {
 public:
  LargeSource(const std::vector<std::string>& weights, std::int64_t rows, std::int64_t columns) {
    IndexBuilder builder;
    const FileId file = builder.AddFile("__0_0.distcp");
    const EncodingId raw = builder.AddEncoding("raw");
    const auto add = [&](const std::string& key, DType dtype) {
      builder.AddTensor(key, dtype, {rows, columns});
      builder.AddChunk(WholeBox({{rows, columns}}), file, raw, 0,
                       NumBytes({{rows, columns}}, dtype));
    };
    for (const std::string& weight : weights) {
      add(weight, DType::kBfloat16);
      add(StoredPairs::KeyOf(weight), DType::kFloat32);
    }
    index_ = builder.Build().value();
  }

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }
  [[nodiscard]] Result<StoredArray> Locate(const GlobalTensor& tensor,
                                           const Chunk& chunk) const override {
    located_.push_back(tensor.key);
    item_bytes_ += chunk.size_bytes;
    return Error(ErrorKind::kIo, "not here").Tensor(tensor.key);
  }
  [[nodiscard]] Result<RenderedObject> ReadObject(const ObjectEntry& object) const override {
    return Error(ErrorKind::kInternal, "no objects").Tensor(object.key);
  }
  [[nodiscard]] Result<std::uint64_t> FileSize(FileId /*file*/) const override { return 0; }
  [[nodiscard]] Protection protection() const override { return Protection::kCrc32; }

  [[nodiscard]] const std::vector<std::string>& located() const { return located_; }
  [[nodiscard]] std::uint64_t item_bytes() const { return item_bytes_; }

 private:
  CheckpointIndex index_;
  mutable std::vector<std::string> located_;
  mutable std::uint64_t item_bytes_ = 0;
};

// Items with a checksum are read whole, so that not all of a large model's are. What cannot be read
// is no error here.
TEST(MainWeightsTest, ReadsAPartOfALargeModel) {
  constexpr std::int64_t kRows = 16 * 1024;
  constexpr std::int64_t kColumns = 8 * 1024;
  const std::string embedding = "embedding.word_embeddings.weight";
  std::vector<std::string> weights = {embedding};
  std::map<std::string, std::string> main_weights;
  for (int i = 0; i < 200; ++i) weights.push_back(fmt::format("a{}", i));
  for (const std::string& weight : weights) main_weights[StoredPairs::KeyOf(weight)] = weight;
  for (const RunDetail detail : {RunDetail::kWhole, RunDetail::kToResume}) {
    const LargeSource source(weights, kRows, kColumns);
    const auto warnings = CheckAreExact(source, main_weights, detail);
    ASSERT_THAT(warnings, IsOk());
    EXPECT_THAT(*warnings, IsEmpty());
    if (detail == RunDetail::kToResume) {
      EXPECT_THAT(source.located(), IsEmpty());
      continue;
    }
    // 0.75 GiB each. Of each pair the exact value is read first, and it cannot be.
    constexpr std::size_t kExpected = 13;  // the embedding is not counted
    ASSERT_THAT(source.located(), SizeIs(kExpected));
    EXPECT_EQ(source.located().front(), StoredPairs::KeyOf(embedding));
    EXPECT_EQ(source.item_bytes(), kExpected * (kGiB / 2));
  }
}

TEST(MainWeightsTest, ArgumentsSayWhichWeightsAreRounded) {
  EXPECT_TRUE(RoundToWeights({}));
  EXPECT_TRUE(RoundToWeights({{"fp8_param", false}, {"main_params_dtype", "float32"}}));
  for (const char* name : {"fp8_param", "fp8_param_gather", "fp4_param", "fp4_param_gather"}) {
    EXPECT_FALSE(RoundToWeights({{name, true}})) << name;
  }
  EXPECT_FALSE(RoundToWeights({{"main_params_dtype", "float16"}}));
  EXPECT_FALSE(RoundToWeights({{"main_params_dtype", "fp16"}}));
  EXPECT_TRUE(RoundToWeights({{"main_params_dtype", "bfloat16"}}));
}

}  // namespace
}  // namespace ckpt::torch_dist
