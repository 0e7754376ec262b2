// What is written is what is read.
#include "formats/fsdp2/internal/writer.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/checkpoint/validate.h"
#include "core/io/memory_storage.h"
#include "formats/dcp/source.h"
#include "formats/format.h"
#include "formats/fsdp2/format.h"
#include "formats/fsdp2/internal/file_writer.h"
#include "formats/fsdp2/internal/read_run.h"
#include "formats/fsdp2/internal/run_objects.h"
#include "formats/registry/stored_run.h"
#include "formats/torch_save/torch_save_source.h"
#include "tests/testing/matchers.h"

namespace ckpt::fsdp2 {
namespace {

using testing::FailsWith;
using testing::IsOk;

TrainingRun SomeRun() {
  TrainingRun run = {.args = {{"num_layers", layout::Value(std::int64_t{2})},
                              {"optimizer", layout::Value("adam")},
                              {"global_batch_size", layout::Value(std::int64_t{4})},
                              {"seed", layout::Value(std::int64_t{11})},
                              {"tokenizer_model", layout::Value()}},
                     .iteration = 5,
                     .consumed_samples = 20,
                     .num_floating_point_operations = 7.5,
                     .schedule = {.max_lr = 0.5, .num_steps = 20, .lr_decay_style = "cosine"},
                     .seed = 11};
  ParamGroup decays = {.max_lr = 0.5, .lr = 0.25, .betas = {0.8, 0.9}, .weight_decay = 0.1};
  decays.step = 5;
  decays.others = {{"fused", layout::Value(true)}, {"lr_scale", layout::Value(0.5)}};
  ParamGroup others = decays;
  others.wd_mult = 0;
  others.weight_decay = 0;
  run.groups = {decays, others};
  run.group_of = {{"a.w", 0}, {"b.norm", 1}};
  return run;
}

RunRequest Request(std::string_view form) {
  RunRequest request;
  for (const char* key :
       {"model.a.w", "model.b.norm", "optim.state.a.w.exp_avg", "optim.state.a.w.exp_avg_sq",
        "optim.state.b.norm.exp_avg", "optim.state.b.norm.exp_avg_sq"}) {
    request.tensors.push_back({.key = key, .dtype = DType::kFloat32, .shape = {2, 3}});
  }
  request.run = SomeRun();
  request.side_files = {{.from = "/model/config.json", .name = "config.json"}};
  if (!form.empty()) request.forms["optimizer-state-dict"] = form;
  return request;
}

// The planned files with zeros for the tensors' elements and what frames them.
std::unique_ptr<Storage> Write(const WritePlan& plan) {
  std::unique_ptr<Storage> storage = MakeMemoryStorage();
  EXPECT_THAT(storage->MakeDirectories("/run"), IsOk());
  for (std::uint32_t f = 0; f < plan.files.size(); ++f) {
    Bytes content(plan.files[f].size_bytes);
    for (const WriteLiteral& literal : plan.literals) {
      if (literal.file != f) continue;
      std::ranges::copy(literal.bytes,
                        content.begin() + static_cast<std::ptrdiff_t>(literal.offset_bytes));
    }
    EXPECT_THAT(WriteSmallFile(*storage, Path("/run") / plan.files[f].name, content), IsOk());
  }
  return storage;
}

class FormTest : public ::testing::TestWithParam<std::string_view> {};

TEST_P(FormTest, IsReadAsTheRunThatWasWritten) {
  const auto plan = PlanRun(Request(GetParam()));
  ASSERT_THAT(plan, IsOk());
  ASSERT_EQ(plan->copies.size(), 1U);
  EXPECT_EQ(plan->copies[0].name, "hf_assets/config.json");
  const auto storage = Write(*plan);
  const auto source = dcp::OpenSource(*storage, "/run");
  ASSERT_THAT(source, IsOk());
  const CheckpointIndex& index = (*source)->index();
  const GlobalTensor* const step = index.FindTensor("optim.state.b.norm.step");
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->dtype, DType::kFloat32);
  EXPECT_TRUE(step->shape.empty());
  for (const RunDetail detail : {RunDetail::kToResume, RunDetail::kWhole}) {
    const auto stored = ReadRun(**source, detail);
    ASSERT_THAT(stored, IsOk());
    TrainingRun expected = SomeRun();
    std::ranges::sort(expected.args, {}, &std::pair<std::string, layout::Value>::first);
    EXPECT_EQ(stored->run, expected);
    EXPECT_EQ(stored->moments.size(), 2U);
  }
}

// SGD without momentum keeps nothing. Where state dicts are nested, torch asks for its place.
TEST_P(FormTest, OfAnOptimizerThatKeepsNothingIsReadAsItWasWritten) {
  RunRequest request = Request(GetParam());
  std::erase_if(request.tensors,
                [](const TargetTensor& tensor) { return tensor.key.starts_with("optim."); });
  for (ParamGroup& group : request.run.groups) {
    group.sgd = SgdSettings{.dampening = 0.5};
    group.betas = ParamGroup().betas;
  }
  TrainingRun expected = request.run;
  std::ranges::sort(expected.args, {}, &std::pair<std::string, layout::Value>::first);
  const auto plan = PlanRun(std::move(request));
  ASSERT_THAT(plan, IsOk());
  const auto storage = Write(*plan);
  const auto source = dcp::OpenSource(*storage, "/run");
  ASSERT_THAT(source, IsOk());
  EXPECT_TRUE(HoldsGroups(**source));
  const bool is_nested = GetParam() == kNested;
  EXPECT_EQ((*source)->index().FindObject("optim.state") != nullptr, is_nested);
  const auto stored = ReadRun(**source, RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->run, expected);
  EXPECT_TRUE(stored->moments.empty());
}

TEST_P(FormTest, InOneFileIsTheNestedObject) {
  RunRequest run = Request(GetParam());
  WeightsRequest request;
  request.tensors = std::move(run.tensors);
  request.forms = std::move(run.forms);
  request.file_name = "run.pt";
  const auto planned =
      PlanEntriesOfRun(kFormat, {.run = std::move(run.run)}, kFormatOfFile, std::move(request));
  ASSERT_THAT(planned, IsOk());
  const WritePlan& plan = planned->plan;
  EXPECT_TRUE(plan.copies.empty());
  WritePlan complete = plan;
  const std::vector<WrittenItem> written(plan.items.size());
  for (WriteLiteral& late : plan.late_bytes->encode(plan, written)) {
    complete.literals.push_back(std::move(late));
  }
  const auto storage = Write(complete);
  const auto source = torch_save::TorchSaveSource::Open(*storage, "/run/run.pt");
  ASSERT_THAT(source, IsOk());
  const auto members = (*source)->members();
  EXPECT_THAT(members, ::testing::UnorderedElementsAre("model", "optim", "lr_scheduler", "run"));
  EXPECT_NE((*source)->index().FindObject("run.args"), nullptr);
  const auto stored = ReadRun(**source, RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  TrainingRun expected = SomeRun();
  std::ranges::sort(expected.args, {}, &std::pair<std::string, layout::Value>::first);
  EXPECT_EQ(stored->run, expected);
  EXPECT_EQ(stored->moments.size(), 2U);
}

TEST(FileTest, RefusesWhatOneFileCannotBe) {
  WeightsRequest files;
  files.files = 2;
  EXPECT_THAT(PlanFile(std::move(files)), FailsWith(ErrorKind::kUsage));
  WeightsRequest compressed;
  compressed.zstd_level = 3;
  EXPECT_THAT(PlanFile(std::move(compressed)), FailsWith(ErrorKind::kUsage));
}

INSTANTIATE_TEST_SUITE_P(Forms, FormTest, ::testing::ValuesIn(kForms),
                         [](const auto& test) { return std::string(test.param); });

TEST(RunPathTest, IsWhereTorchHasIt) {
  const auto path = [](const char* key, bool is_flat) {
    const ChosenForms forms = {{std::string(kOptimizerOption), is_flat ? "flattened" : "nested"}};
    std::string text;
    for (const PathStep& step : RunPath(key, forms)) {
      const auto* const name = std::get_if<std::string>(&step);
      text += (text.empty() ? "" : "|") +
              (name != nullptr ? *name : "#" + std::to_string(std::get<std::int64_t>(step)));
    }
    return text;
  };
  EXPECT_EQ(path("model.layers.0.w", false), "model|layers.0.w");
  EXPECT_EQ(path("optim.state.layers.0.w.exp_avg", false), "optim|state|layers.0.w|exp_avg");
  EXPECT_EQ(path("optim.state.layers.0.w.exp_avg", true), "optim|state.layers.0.w.exp_avg");
  EXPECT_EQ(path("optim.param_groups.1.lr", false), "optim|param_groups|#1|lr");
  EXPECT_EQ(path("optim.param_groups.layers.0.w.lr", true), "optim|param_groups.layers.0.w.lr");
  EXPECT_EQ(path("lr_scheduler._last_lr", false), "lr_scheduler|_last_lr");
  EXPECT_EQ(path("run.args", false), "run|args");
  EXPECT_EQ(path("run.param_groups.0.wd_mult", false), "run|param_groups|#0|wd_mult");
}

TEST(SgdTest, CountsNoUpdatesInItsState) {
  TrainingRun run = SomeRun();
  for (ParamGroup& group : run.groups) group.sgd = {.momentum = 0.75, .dampening = 0.5};
  EXPECT_TRUE(StepTensors(run).empty());
  const auto objects = RunObjects(run, {});
  const auto has = [&](const char* key) {
    return std::ranges::any_of(objects, [&](const auto& object) { return object.key == key; });
  };
  EXPECT_TRUE(has("optim.param_groups.0.momentum"));
  EXPECT_FALSE(has("optim.param_groups.0.betas"));
}

// The state of a program's own scheduler is no other, even if both are of LambdaLR.
TEST(RunObjectsTest, LeaveAProgramsSchedulerAlone) {
  const TrainingRun run = Request("nested").run;
  const std::string key = "lr_scheduler.last_epoch";
  const auto of = [&](std::vector<PickledEntry> carried) {
    std::map<std::string, Bytes> objects;
    for (PickledEntry& object : RunObjects(run, {}, std::move(carried))) {
      EXPECT_TRUE(objects.emplace(object.key, object.value.pickle).second) << object.key;
    }
    return objects;
  };
  const auto ours = of({});
  EXPECT_TRUE(ours.contains("lr_scheduler.lr_lambdas"));
  EXPECT_FALSE(ours.contains("run.has_own_scheduler"));
  const auto theirs = of({{key, {Bytes(3)}}});
  EXPECT_EQ(theirs.at(key), Bytes(3));
  EXPECT_FALSE(theirs.contains("lr_scheduler.lr_lambdas"));
  EXPECT_TRUE(theirs.contains("run.has_own_scheduler"));
}

// A rate that is a tensor stays one.
TEST(EntriesOfRunTest, HaveTheTensorsOfAProgramsScheduler) {
  RunRequest request = Request("nested");
  request.carried = {{"lr_scheduler.last_epoch", {Bytes(3)}}};
  const std::string key = "lr_scheduler.base_lrs.0";
  request.carried_tensors = {{key, DType::kFloat32, {}, Bytes(4)}};
  request.carried_paths = {
      {key, {std::string("lr_scheduler"), std::string("base_lrs"), std::int64_t{0}}}};
  const auto plan = PlanRun(std::move(request));
  ASSERT_THAT(plan, IsOk());
  const auto storage = Write(*plan);
  const auto source = dcp::OpenSource(*storage, "/run");
  ASSERT_THAT(source, IsOk());
  EXPECT_NE((*source)->index().FindTensor(key), nullptr);
  EXPECT_NE((*source)->index().FindTensor("optim.state.a.w.step"), nullptr);
  const EntryPath path = (*source)->Paths().at(key);
  EXPECT_EQ(path,
            (EntryPath{std::string("lr_scheduler"), std::string("base_lrs"), std::int64_t{0}}));
}

}  // namespace
}  // namespace ckpt::fsdp2
