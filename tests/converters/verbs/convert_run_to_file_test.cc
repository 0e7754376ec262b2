// Training runs, and their weights, in containers of plain tensors.
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/converters/verbs/convert_run_fixture.h"

namespace ckpt {
namespace {

using testing::ConvertRunTest;
using testing::FailsWith;
using testing::IsOk;

// A file has the entries that a directory has in the same form, and the run comes back from them.
TEST_F(ConvertRunTest, GoesToAFileInEachForm) {
  struct Form {
    const char* format;
    const char* directory;
    const char* naming;
    ChosenForms forms;
  };
  const std::string model_space = "fully_sharded_model_space";
  const std::vector<Form> forms = {
      {"torch_dist", "torch_dist", "torch_dist", {{"optimizer-form", model_space}}},
      {"torch_dist", "torch_dist", "torch_dist", {{"optimizer-form", "dp_reshardable"}}},
      {"fsdp_dtensor", "torch_dist", "torch_dist", {{"expert-optimizer", "separate"}}},
      {"fsdp_dtensor", "dcp", "fsdp2", {{"optimizer-state-dict", "flattened"}}}};
  for (const Form& form : forms) {
    const Path source = form.format == std::string_view("torch_dist")
                            ? RunOf("torch_dist", "opt_fully_reshardable_dp1_core016")
                            : RunOf("fsdp_dtensor", "moe_ep2_fsdp4");
    const auto converted = [&](const char* container, const std::string& name) {
      ConvertOptions options = Between(form.format, container, source, name);
      options.to.naming = form.naming;
      options.to.choices["transformer_impl"] = "local";
      options.to.forms = form.forms;
      options.overwrite = true;
      const auto report = Convert(options);
      EXPECT_THAT(report, IsOk());
      if (report.ok()) {
        EXPECT_EQ(report->target_digest, report->source_digest);
      }
      return options.target;
    };
    const auto back = [&](const Path& path) {
      ConvertOptions options = Between(form.naming, "torch_dist", path, "again");
      options.overwrite = true;
      EXPECT_THAT(Convert(options), IsOk());
      return Tensors(options.target, {""});
    };
    const Path directory = converted(form.directory, "directory");
    const auto tensors = Tensors(directory, {""});
    const auto tensors_again = back(directory);
    ASSERT_FALSE(tensors.empty());
    for (const char* container : {"hdf5", "torch_save"}) {
      SCOPED_TRACE(fmt::format("{} in {}", form.forms.begin()->second, container));
      const Path file = converted(container, fmt::format("run in {}", container));
      EXPECT_EQ(Tensors(file, {""}), tensors);
      EXPECT_EQ(Objects(file), Objects(directory));
      ExpectSameRun(WholeState(directory).run, WholeState(file).run);
      EXPECT_EQ(back(file), tensors_again);
    }
  }
}

// A container of entries of any names holds the run as each format that stores runs has it.
TEST_F(ConvertRunTest, GoesToAFileUnderTheNamesOfEachFormat) {
  const std::vector<std::string> all = {"model.module.", "optimizer.state."};
  const Path source = RunOf("fsdp_dtensor", "moe_ep2_fsdp4");
  const TrainingState first = WholeState(source);
  for (const char* container : {"hdf5", "torch_save"}) {
    for (const char* naming : {"fsdp_dtensor", "torch_dist", "fsdp2"}) {
      SCOPED_TRACE(fmt::format("{} in {}", naming, container));
      ConvertOptions there =
          Between("fsdp_dtensor", container, source, fmt::format("run in {}", container));
      there.to.naming = naming;
      there.overwrite = true;
      const auto report = Convert(there);
      ASSERT_THAT(report, IsOk());
      EXPECT_EQ(report->target_digest, report->source_digest);
      ExpectNoPartOfTheStateDropped(*report);
      ConvertOptions back = Between(naming, "fsdp_dtensor", there.target, "again");
      back.overwrite = true;
      for (const char* choice : {"transformer_impl", "expert_names"}) {
        back.to.choices[choice] = first.weights.match.layout.choices.at(choice);
      }
      ASSERT_THAT(Convert(back), IsOk());
      EXPECT_EQ(Tensors(back.target, all), Tensors(source, all));
      const TrainingState last = WholeState(back.target);
      EXPECT_EQ(last.run.iteration, first.run.iteration);
      EXPECT_EQ(last.run.consumed_samples, first.run.consumed_samples);
      EXPECT_EQ(last.run.schedule, first.run.schedule);
      EXPECT_EQ(last.run.group_of.size(), first.run.group_of.size());
      // A file has none of the files that other forms are about.
      there.to.forms["tree"] = "megatron-bridge";
      EXPECT_THAT(Convert(there), FailsWith(ErrorKind::kUsage));
    }
  }
}

// What model the weights are is said by the run's arguments, and nothing in the target repeats it.
TEST_F(ConvertRunTest, ProvesPlainTensorsOfARunThatHasNoConfigJson) {
  const std::vector<std::string> of_megatron = {"hf", "fsdp2", "torch_dist", "fsdp_dtensor"};
  const std::map<std::string, std::vector<std::string>> namings = {
      {"dcp", {"hf"}},
      {"torch_save", of_megatron},
      {"hdf5", of_megatron},
      {"safetensors", {"fsdp2", "torch_dist", "fsdp_dtensor"}}};
  for (const auto& [format, name] :
       {std::pair("fsdp_dtensor", "dense_fsdp2"), std::pair("torch_dist", "dense_tp1_core012")}) {
    const Path source = RunOf(format, name);
    for (const auto& [to, names] : namings) {
      for (const std::string& naming : names) {
        SCOPED_TRACE(fmt::format("{} to {} as {}", name, to, naming));
        ConvertOptions options = Between(format, to, source, to + naming);
        options.to.naming = naming;
        options.overwrite = true;
        const auto report = Convert(options);
        ASSERT_THAT(report, IsOk());
        EXPECT_FALSE(report->target_digest.empty());
        EXPECT_EQ(report->target_digest, report->source_digest);
      }
    }
  }
}

// A file of the weights holds the run's objects, but none of the optimizer, which it does not hold.
TEST_F(ConvertRunTest, WeightsInAFileAreNotTakenForARun) {
  for (const auto& [format, name] : {std::pair("fsdp_dtensor", "dense_fsdp2"),
                                     std::pair("torch_dist", "opt_fp32_dp2_core016")}) {
    SCOPED_TRACE(name);
    ConvertOptions there = Between(format, "hdf5", RunOf(format, name), "weights.h5");
    there.to.naming = "hf";
    there.overwrite = true;
    ASSERT_THAT(Convert(there), IsOk());
    const auto opened = OpenCheckpoint(PosixStorage(), there.target);
    ASSERT_THAT(opened, IsOk());
    EXPECT_FALSE(opened->source->index().objects().empty());
    ConvertOptions back = Between("hf", format, there.target, "again");
    back.overwrite = true;
    const auto report = Convert(back);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->target_digest, report->source_digest);
  }
}

}  // namespace
}  // namespace ckpt
