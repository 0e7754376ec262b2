// Settings of an optimizer in the classes that Python, numpy and torch have for them, and groups of
// optimizers that keep the same as SGD or Adam.
#include "formats/megatron/stored_settings.h"

#include <array>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json/json_reader.h"
#include "core/layout/value.h"
#include "core/training/run_format.h"
#include "tests/testing/matchers.h"

namespace ckpt::megatron {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::Pair;

using Texts = std::map<std::string, std::string, std::less<>>;  // name → JSON

// Settings as a test states them.
class StatedSettings final : public StoredSettings {
 public:
  explicit StatedSettings(Texts texts, HeldNumbers numbers = {})
      : texts_(std::move(texts)), numbers_(std::move(numbers)) {}

  [[nodiscard]] bool Has(std::string_view name) const override {
    return texts_.find(name) != texts_.end();
  }
  [[nodiscard]] std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, text] : texts_) names.push_back(name);
    return names;
  }
  [[nodiscard]] std::string Where(std::string_view name) const override {
    return fmt::format("groups.0.{}", name);
  }

 protected:
  Status Give(std::string_view name, const TakeValue& take) const override {
    const auto found = texts_.find(name);
    if (found == texts_.end()) return OkStatus();
    CKPT_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::Parse(found->second, name));
    const JsonCursor root = json.root();
    return take(SettingValue(root, numbers_)).Tensor(Where(name));
  }

 private:
  Texts texts_;
  HeldNumbers numbers_;
};

std::string Numpy(std::string_view dtype, std::string_view hex) {
  return fmt::format(R"({{"$numpy_scalar": {{"dtype": "{}", "bytes": "{}"}}}})", dtype, hex);
}
std::string Tensor(std::string_view digest) {
  return fmt::format(R"({{"$tensor": {{"shape": [], "dtype": "float32", "sha256": "{}"}}}})",
                     digest);
}

template <typename T>
Result<T> ReadOne(const std::string& json, const HeldNumbers& numbers = {}) {
  T value = {};
  CKPT_RETURN_IF_ERROR(StatedSettings({{"lr", json}}, numbers).Read("lr", value));
  return value;
}

TEST(StoredSettingsTest, ReadsNumbersOfEveryClass) {
  const HeldNumbers numbers = {{{DType::kFloat32, "ab"}, 0.25}};
  const std::vector<std::pair<std::string, double>> cases = {
      {"0.5", 0.5},
      {"2", 2},
      {Numpy("<f8", "000000000000e03f"), 0.5},
      {Numpy(">f8", "3fe0000000000000"), 0.5},
      {Numpy("<f4", "0000003f"), 0.5},
      {Numpy("<f2", "0038"), 0.5},
      {Numpy("<i8", "feffffffffffffff"), -2},
      {Numpy(">i4", "fffffffe"), -2},
      {Numpy("|i1", "fe"), -2},
      {Numpy("|u1", "fe"), 254},
      {Tensor("ab"), 0.25}};
  for (const auto& [json, expected] : cases) {
    const Result<double> number = ReadOne<double>(json, numbers);
    ASSERT_THAT(number, IsOk()) << json;
    EXPECT_EQ(*number, expected) << json;
  }
}

TEST(StoredSettingsTest, ReadsCountsAndTruthValuesOfNumpy) {
  const auto count = ReadOne<std::int64_t>(Numpy("<i8", "0300000000000000"));
  ASSERT_THAT(count, IsOk());
  EXPECT_EQ(*count, 3);
  const auto whole = ReadOne<std::int64_t>(Numpy("<f8", "0000000000000840"));
  ASSERT_THAT(whole, IsOk());
  EXPECT_EQ(*whole, 3);
  EXPECT_THAT(ReadOne<std::int64_t>(Numpy("<f8", "000000000000e03f")),
              FailsWith(ErrorKind::kBadMetadata));
  const auto flag = ReadOne<bool>(Numpy("|b1", "01"));
  ASSERT_THAT(flag, IsOk());
  EXPECT_TRUE(*flag);
}

TEST(StoredSettingsTest, ReadsPairsOfEveryClass) {
  using Betas = std::array<double, 2>;
  const HeldNumbers numbers = {{{DType::kFloat32, "ab"}, 0.75}, {{DType::kFloat32, "cd"}, 0.5}};
  for (const std::string& json :
       {std::string(R"({"$tuple": [0.75, 0.5]})"), std::string("[0.75, 0.5]"),
        fmt::format(R"({{"$tuple": [{}, {}]}})", Tensor("ab"), Tensor("cd")),
        fmt::format("[0.75, {}]", Numpy("<f8", "000000000000e03f"))}) {
    const auto betas = ReadOne<Betas>(json, numbers);
    ASSERT_THAT(betas, IsOk()) << json;
    EXPECT_EQ(*betas, (Betas{0.75, 0.5})) << json;
  }
  for (const char* no_pair : {"0.5", R"("0.9")", "[0.5]", R"({"$tuple": [0.5, 0.5, 0.5]})"}) {
    const auto betas = ReadOne<Betas>(no_pair);
    ASSERT_THAT(betas, FailsWith(ErrorKind::kBadMetadata)) << no_pair;
    EXPECT_EQ(betas.status().first().message, "not a pair of numbers");
  }
}

TEST(StoredSettingsTest, KeepsWhatIsPlainOnceNumpyIsTakenOff) {
  const auto list = ReadOne<layout::Value>(fmt::format(
      R"([1, "a", true, {}, {}])", Numpy("<f8", "000000000000e03f"), Numpy("<i4", "07000000")));
  ASSERT_THAT(list, IsOk());
  EXPECT_EQ(*list, layout::Value(layout::Value::List{1, "a", true, 0.5, 7}));
}

struct NotPlainCase {
  const char* name;
  std::string json;
  const char* actual;  // the class
};
void PrintTo(const NotPlainCase& c, std::ostream* os) { *os << c.name; }

class NotPlainTest : public ::testing::TestWithParam<NotPlainCase> {};

// As a number, as a plain value, and in a pair.
TEST_P(NotPlainTest, IsRefusedByItsClass) {
  const std::string& json = GetParam().json;
  const std::vector<Status> refused = {
      ReadOne<double>(json).status(), ReadOne<layout::Value>(json).status(),
      ReadOne<std::array<double, 2>>(fmt::format("[0.5, {}]", json)).status()};
  for (const Status& status : refused) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.kind(), ErrorKind::kUnsupported);
    const Problem& problem = status.first();
    EXPECT_EQ(problem.message, "a setting of the optimizer is not a plain value");
    EXPECT_EQ(problem.tensor, "groups.0.lr");
    EXPECT_THAT(problem.actual, HasSubstr(GetParam().actual));
    EXPECT_EQ(problem.hint, kTakeWeightsAlone);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, NotPlainTest,
    ::testing::Values(
        NotPlainCase{"Dict", R"({"a": 1})", "dict"},
        NotPlainCase{"TensorOfUnknownValue", Tensor("ab"), "torch.Tensor"},
        NotPlainCase{"Array", R"({"$numpy_array": {"dtype": "<f8", "shape": [2], "sha256": "a"}})",
                     "numpy.ndarray"},
        NotPlainCase{"Object", R"({"$object": {"class": "program.Rate", "state": {}}})",
                     "program.Rate"},
        NotPlainCase{"Opaque", R"({"$opaque": "omegaconf.ListConfig"})", "omegaconf.ListConfig"},
        NotPlainCase{"NotANumber", R"({"$float": "nan"})", "nan"},
        NotPlainCase{"NumpyNotANumber", Numpy("<f4", "0000c07f"), "<f4"},
        NotPlainCase{"Complex", Numpy("<c8", "0000000000000000"), "<c8"},
        NotPlainCase{"LongDouble", Numpy("<f16", "00000000000000000000000000000000"), "<f16"},
        NotPlainCase{"TooLarge", Numpy("<u8", "ffffffffffffffff"), "<u8"},
        NotPlainCase{"OtherSize", Numpy("<f8", "0000003f"), "<f8"},
        NotPlainCase{"NoDigits", Numpy("<f4", "0000003g"), "<f4"},
        NotPlainCase{"OddDigits", Numpy("<f4", "0000003"), "<f4"},
        NotPlainCase{"NoBytes", Numpy("<f0", ""), "<f0"},
        NotPlainCase{"NoScalar", R"({"$numpy_scalar": 3})", "numpy"}),
    [](const auto& test) { return std::string(test.param.name); });

Texts GroupOfAdam() {
  return {{"lr", "0.5"},
          {"betas", "[0.75, 0.5]"},
          {"eps", "1e-08"},
          {"weight_decay", "0.1"},
          {"amsgrad", "false"}};
}
Texts GroupOfSgd() {
  return {{"lr", "0.5"},
          {"momentum", "0.9"},
          {"dampening", "0"},
          {"nesterov", "false"},
          {"weight_decay", "0.1"}};
}

// Its place if the group is refused by it.
std::string RefusedBy(const Texts& texts) {
  ParamGroup group;
  StoredRun run;
  const Status read = ReadTorchGroup(StatedSettings(texts), group, run);
  if (read.ok()) return "";
  EXPECT_EQ(read.kind(), ErrorKind::kUnsupported);
  EXPECT_EQ(read.first().hint, kTakeWeightsAlone);
  return read.first().tensor;
}

// What programs and schedulers put into a group does not change the update.
TEST(ReadTorchGroupTest, TakesSgdAndAdamWithSettingsOfAProgram) {
  for (Texts texts : {GroupOfSgd(), GroupOfAdam()}) {
    texts.insert({{"name", R"("decayed")"},
                  {"initial_lr", "0.75"},
                  {"max_momentum", "0.95"},
                  {"lr_scale", "0.5"},
                  {"maximize", "false"},
                  {"foreach", "null"},
                  {"fused", "null"}});
    ParamGroup group;
    StoredRun run;
    ASSERT_THAT(ReadTorchGroup(StatedSettings(texts), group, run), IsOk());
    EXPECT_EQ(group.sgd.has_value(), texts.contains("momentum"));
    EXPECT_EQ(group.lr, 0.5);
    EXPECT_THAT(group.others, ElementsAre(Pair("lr_scale", layout::Value(0.5)),
                                          Pair("max_momentum", layout::Value(0.95)),
                                          Pair("name", layout::Value("decayed"))));
  }
}

// Keller Jordan's Muon has neither, torch's the second.
TEST(ReadTorchGroupTest, RefusesAMomentumThatNothingSaysIsSgds) {
  for (const char* mark : {"dampening", "nesterov"}) {
    Texts texts = GroupOfSgd();
    texts.erase(mark);
    EXPECT_EQ(RefusedBy(texts), fmt::format("groups.0.{}", mark));
  }
}

TEST(ReadTorchGroupTest, RefusesSettingsOfOtherOptimizers) {
  for (const auto& [name, json] : Texts{{"ns_steps", "5"},
                                        {"ns_coefficients", R"({"$tuple": [3.5, -4.75, 2.0]})"},
                                        {"adjust_lr_fn", "null"},
                                        {"trust_coefficient", "0.001"},
                                        {"grad_averaging", "false"},
                                        {"decoupled_decay", "false"},
                                        {"lookahead_k", "6"},
                                        {"rho", "0.05"},
                                        {"caution", "true"},
                                        {"use_muon", "true"}}) {
    for (Texts texts : {GroupOfSgd(), GroupOfAdam()}) {
      texts[name] = json;
      EXPECT_EQ(RefusedBy(texts), fmt::format("groups.0.{}", name));
    }
  }
}

// timm's AdamW without caution is torch's. Its SGDW decouples the decay in any case.
TEST(ReadTorchGroupTest, ASwitchThatIsOffLeavesAdamAsItIs) {
  for (const std::string& off : {std::string("false"), std::string("null"), Numpy("|b1", "00")}) {
    Texts adam = GroupOfAdam();
    adam["caution"] = adam["corrected_weight_decay"] = off;
    EXPECT_THAT(RefusedBy(adam), IsEmpty());
    Texts sgd = GroupOfSgd();
    sgd["caution"] = off;
    EXPECT_EQ(RefusedBy(sgd), "groups.0.caution");
  }
}

// Torch's SGD has none of Adam's settings; LARS has.
TEST(ReadTorchGroupTest, RefusesSgdWithSettingsOfAdam) {
  for (const char* name : {"eps", "betas", "amsgrad"}) {
    Texts texts = GroupOfSgd();
    texts[name] = GroupOfAdam().at(name);
    EXPECT_EQ(RefusedBy(texts), fmt::format("groups.0.{}", name));
  }
}

TEST(ReadGroupTest, RefusesSettingsOfOtherOptimizersInMegatronsGroups) {
  Texts texts = GroupOfSgd();
  texts["wd_mult"] = "1.0";
  ParamGroup group;
  StoredRun run;
  EXPECT_THAT(ReadGroup(StatedSettings(texts), group, run), IsOk());
  texts["num_ns_steps"] = "5";
  const Status read = ReadGroup(StatedSettings(texts), group, run);
  ASSERT_THAT(read, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(read.first().message, "the optimizer has a setting that SGD does not have");
  EXPECT_EQ(read.first().tensor, "groups.0.num_ns_steps");
}

}  // namespace
}  // namespace ckpt::megatron
