// Runs of other programs with FSDP2: a tied head in two parts, a scheduler's settings in the
// groups, things that lie beside the run, names that a wrapper gave.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/checkpoint/read.h"
#include "formats/dcp/writer.h"
#include "formats/registry/stored_run.h"
#include "tests/converters/verbs/convert_fixture.h"

namespace ckpt {
namespace {

using ::testing::Contains;
using testing::ConvertTest;
using testing::FailsWith;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;

constexpr std::string_view kModel = "llama-tied-fp32";
constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kTokenTable = "model.embed_tokens.weight";

class ConvertForeignRunTest : public ConvertTest {
 protected:
  // The model's weights, with moments of the same values. FSDP2 wraps the head apart, so that the
  // optimizer has a state for it, too.
  void SetUp() override {
    ConvertOptions weights = Between("hf", "dcp", Golden(std::string(kModel)), "weights");
    weights.to.naming = "fsdp2";
    ASSERT_THAT(Convert(weights), IsOk());
    const auto opened = OpenCheckpoint(PosixStorage(), weights.target);
    ASSERT_THAT(opened, IsOk());
    for (const GlobalTensor& tensor : opened->source->index().tensors()) {
      MemoryTensor weight = {tensor.key, tensor.dtype, tensor.shape,
                             Bytes(NumBytes(tensor.shape, tensor.dtype))};
      ASSERT_THAT(ReadBox(*opened->source, tensor, WholeBox(tensor.shape), weight.values, 1 << 20),
                  IsOk());
      const std::string name = tensor.key.substr(std::string_view("model.").size());
      for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
        tensors_[MomentKey(name, moment)] = weight;
      }
      tensors_[tensor.key] = std::move(weight);
      run_.group_of.emplace_back(name, 0);
    }
    ASSERT_TRUE(tensors_.contains(MomentKey(kHead, "exp_avg")));
    ParamGroup group = {.max_lr = 0.5, .lr = 0.5, .weight_decay = 0.1};
    group.step = 3;
    run_.groups = {group};
  }

  static const RunFormat& Names() { return *FormOfRun(**FindFormat("dcp"), "fsdp2").run; }
  static std::string MomentKey(std::string_view name, std::string_view moment) {
    return Names().moment_key(name, moment);
  }

  // What the program saves, under names that start otherwise: with `to` in place of `from`.
  Path Save(const std::map<std::string, std::string>& renamed = {}) {
    const auto rename = [&](std::string key) {
      for (const auto& [from, to] : renamed) {
        if (key.starts_with(from)) return to + key.substr(from.size());
      }
      return key;
    };
    RunRequest request;
    request.run = run_;
    auto entries = Names().entries(request);
    EXPECT_THAT(entries, IsOk());
    dcp::WriterOptions options;
    for (PickledEntry& object : entries->objects) {
      if (!object.key.starts_with("optim.")) continue;  // ours
      options.objects.push_back({rename(object.key), std::move(object.value)});
    }
    for (MemoryTensor& step : entries->known_tensors) {
      step.key = rename(step.key);
      options.known_tensors.push_back(std::move(step));
    }
    for (const auto& [key, tensor] : tensors_) {
      options.known_tensors.push_back(tensor);
      options.known_tensors.back().key = rename(key);
    }
    const auto plan = dcp::PlanDcp({}, options);
    EXPECT_THAT(plan, IsOk());
    const Path path = dir_.path() / "run";
    EXPECT_THAT(PosixStorage().RemoveAll(path), IsOk());
    EXPECT_THAT(PosixStorage().MakeDirectories(path), IsOk());
    for (std::uint32_t f = 0; f < plan->files.size(); ++f) {
      Bytes content(plan->files[f].size_bytes);
      for (const WriteLiteral& literal : plan->literals) {
        if (literal.file != f) continue;
        std::ranges::copy(literal.bytes,
                          content.begin() + static_cast<std::ptrdiff_t>(literal.offset_bytes));
      }
      EXPECT_THAT(WriteSmallFile(PosixStorage(), path / plan->files[f].name, content), IsOk());
    }
    return path;
  }

  [[nodiscard]] ConvertOptions To(const std::string& container, const Path& run) const {
    ConvertOptions options = Between("", container, run, container);
    options.model.assets = Golden(std::string(kModel));
    options.overwrite = true;
    if (container == "dcp") options.to.naming = "fsdp2";
    return options;
  }

  std::map<std::string, MemoryTensor> tensors_;
  TrainingRun run_;
};

TEST_F(ConvertForeignRunTest, StateOfATiedCopyIsThatOfTheWeight) {
  for (const char* container : {"dcp", "torch_dist"}) {
    const auto report = Convert(To(container, Save()));
    ASSERT_THAT(report, IsOk()) << container;
    for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
      EXPECT_THAT(report->dropped, Contains(Field(&LeftOutEntry::key, MomentKey(kHead, moment))));
    }
  }
}

TEST_F(ConvertForeignRunTest, StateOfATiedCopyThatDiffersIsRefused) {
  const std::string key = MomentKey(kHead, "exp_avg_sq");
  tensors_[key].values[0] ^= std::byte{1};
  for (const char* container : {"dcp", "torch_dist"}) {
    const auto refused = Convert(To(container, Save()));
    ASSERT_THAT(refused, FailsWith(ErrorKind::kValueMismatch)) << container;
    EXPECT_EQ(refused.status().first().tensor, key);
  }
}

TEST_F(ConvertForeignRunTest, StateOfATiedCopyAloneIsRefused) {
  for (const char* moment : {"exp_avg", "exp_avg_sq"})
    tensors_.erase(MomentKey(kTokenTable, moment));
  std::erase_if(run_.group_of, [](const auto& of) { return of.first == kTokenTable; });
  const auto refused = PrepareConversion(PosixStorage(), To("dcp", Save()));
  ASSERT_THAT(refused, FailsWith(ErrorKind::kMissing));
  EXPECT_EQ(refused.status().first().tensor, MomentKey(kHead, "exp_avg"));
}

TEST_F(ConvertForeignRunTest, ATiedCopyInAnotherGroupIsRefused) {
  run_.groups.push_back(run_.groups.front());
  for (auto& [name, group] : run_.group_of) {
    if (name == kHead) group = 1;
  }
  EXPECT_THAT(PrepareConversion(PosixStorage(), To("dcp", Save())), IsOk());
  run_.groups[1].weight_decay = 0;
  const auto refused = PrepareConversion(PosixStorage(), To("dcp", Save()));
  ASSERT_THAT(refused, FailsWith(ErrorKind::kValueMismatch));
  EXPECT_EQ(refused.status().first().tensor, MomentKey(kHead, "exp_avg"));
}

// OneCycleLR keeps its own rates in the group.
TEST_F(ConvertForeignRunTest, MembersOfAGroupThatMegatronNamesOtherwiseAreTold) {
  run_.groups[0].others = {{"max_lr", layout::Value(0.75)}, {"name", layout::Value("all")}};
  const auto told = [&](const std::string& container) {
    const auto prepared = PrepareConversion(PosixStorage(), To(container, Save()));
    EXPECT_THAT(prepared, IsOk()) << container;
    std::vector<std::string> messages;
    if (!prepared.ok()) return messages;
    for (const Problem& warning : prepared->warnings) {
      if (warning.message.find("max_lr") != std::string::npos) messages.push_back(warning.message);
    }
    return messages;
  };
  for (const char* container : {"torch_dist", "fsdp_dtensor"}) {
    const std::vector<std::string> messages = told(container);
    ASSERT_EQ(messages.size(), 1U) << container;
    EXPECT_THAT(messages[0], ::testing::EndsWith(": max_lr 0.75"));
  }
  EXPECT_THAT(told("dcp"), IsEmpty());
}

TEST_F(ConvertForeignRunTest, WhatLiesBesideARunIsLeftOutOnRequest) {
  tensors_["rng"] = {"rng", DType::kUint8, {3}, Bytes(3)};
  ConvertOptions options = To("dcp", Save());
  const auto unmapped = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(unmapped, FailsWith(ErrorKind::kUnmapped));
  EXPECT_THAT(unmapped.status().first().hint, HasSubstr("--drop 'rng'"));
  options.model.drop = {"rng"};
  const auto report = Convert(options);
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->dropped, Contains(::testing::AllOf(
                                   Field(&LeftOutEntry::key, "rng"),
                                   Field(&LeftOutEntry::why, std::string(kLeftOutOnRequest)))));
}

TEST_F(ConvertForeignRunTest, NoPartOfARunIsLeftOutOnRequest) {
  tensors_["rng"] = {"rng", DType::kUint8, {3}, Bytes(3)};
  const std::map<std::string, std::string> first_of = {
      {"model.model.norm.*", "model.model.norm.weight"},
      {"*norm.weight.step", "optim.state.model.layers.0.input_layernorm.weight.step"},
      {"optim.*.model.norm.*", "optim.state.model.norm.weight.exp_avg"},
      {"*.lr", "optim.param_groups.0.lr"}};
  const Path run = Save();
  for (const auto& [pattern, key] : first_of) {
    ConvertOptions options = To("dcp", run);
    options.model.drop = {"rng", pattern};
    const auto refused = PrepareConversion(PosixStorage(), options);
    ASSERT_THAT(refused, FailsWith(ErrorKind::kUsage)) << pattern;
    EXPECT_EQ(refused.status().first().tensor, key);
  }
  // A weight that is lost is no request.
  tensors_.erase("model.model.norm.weight");
  ConvertOptions options = To("dcp", Save());
  options.model.drop = {"rng"};
  const auto lost = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(lost, FailsWith(ErrorKind::kMissing));
  EXPECT_EQ(lost.status().first().tensor, "model.model.norm.weight");
}

// As Lightning saves: its module's name before the model's, and a number behind the optimizer's.
TEST_F(ConvertForeignRunTest, NamesOfAWrapperAreTakenOffAndTheRestIsLeftOut) {
  const Path run = Save({{"model.", "model.model."},
                         {"optim.state.", "optimizer_0.state.model."},
                         {"optim.param_groups.", "optimizer_0.param_groups."}});
  ConvertOptions options = To("dcp", run);
  const auto unknown = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(unknown, FailsWith(ErrorKind::kUnmapped));
  EXPECT_THAT(unknown.status().first().hint, ::testing::AllOf(HasSubstr("--rename 'model.*=*'"),
                                                              HasSubstr("--drop 'optimizer_0.*'")));
  options.model.rename = {{"model.model.*", "*"}};
  const auto rest = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(rest, FailsWith(ErrorKind::kUnmapped));
  EXPECT_THAT(rest.status().problems().back().hint, HasSubstr("--drop 'optimizer_0.*'"));
  options.model.drop = {"optimizer_0.*"};
  EXPECT_THAT(Convert(options), IsOk());
}

// Only tensors get other names, and an optimizer is more than those.
TEST_F(ConvertForeignRunTest, NoRunIsMadeByOtherNames) {
  const Path run = Save({{"optim.state.", "optimizer_0.state."},
                         {"optim.param_groups.", "optimizer_0.param_groups."}});
  ConvertOptions options = To("dcp", run);
  options.model.rename = {{"optimizer_0.state.*", "optim.state.*"},
                          {"optimizer_0.param_groups.*", "optim.param_groups.*"}};
  const auto refused = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(refused.status().first().tensor, ::testing::StartsWith("optimizer_0.state."));
  options.weights_only = true;
  const auto in_vain = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(in_vain, FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(in_vain.status().first().message, HasSubstr("optimizer_0.param_groups.*"));
  options.model.rename.erase("optimizer_0.param_groups.*");
  EXPECT_THAT(Convert(options), IsOk());
}

}  // namespace
}  // namespace ckpt
