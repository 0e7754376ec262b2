// Whole training runs as torch_dist and fsdp_dtensor.
#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "converters/verbs/training_state.h"
#include "core/checkpoint/digest.h"
#include "tests/converters/verbs/convert_fixture.h"

namespace ckpt {
namespace {

using ::testing::AllOf;
using testing::Content;
using testing::ConvertTest;
using testing::FailsWith;
using testing::GoldenDir;
using ::testing::HasSubstr;
using testing::IsOk;

constexpr const char* kFormReason = "the checkpoint does not say where in them a parameter lies";

class ConvertRunTest : public ConvertTest {
 protected:
  static Path RunOf(const std::string& format, const std::string& name) {
    return GoldenDir() / format / name / "ckpt";
  }
  ConvertOptions ToTorchDist(const Path& source) const {
    ConvertOptions options = Between("fsdp_dtensor", "torch_dist", source, "torch_dist");
    options.overwrite = true;
    return options;
  }
  ConvertOptions ToFsdpRun(const Path& source) const {
    ConvertOptions options = Between("torch_dist", "fsdp_dtensor", source, "fsdp");
    options.overwrite = true;
    return options;
  }

  // Key → digest of every tensor that begins with one of `prefixes`.
  static std::map<std::string, std::string> Tensors(const Path& path,
                                                    const std::vector<std::string>& prefixes) {
    std::map<std::string, std::string> digests;
    const auto opened = OpenCheckpoint(PosixStorage(), path);
    EXPECT_THAT(opened, IsOk());
    if (!opened.ok()) return digests;
    for (const GlobalTensor& tensor : opened->source->index().tensors()) {
      const bool is_wanted = std::ranges::any_of(
          prefixes, [&](const std::string& prefix) { return tensor.key.starts_with(prefix); });
      if (!is_wanted) continue;
      const auto digest =
          DigestTensor(*opened->source, tensor, HashAlgorithm::kSha256, std::uint64_t{1} << 20);
      EXPECT_THAT(digest, IsOk());
      digests[tensor.key] =
          std::string(DTypeName(tensor.dtype)) + FormatDims(tensor.shape) + digest.value();
    }
    return digests;
  }

  // Key → value of every object. `_extra_state` of Transformer Engine holds nothing, and is there
  // for Megatron's loader alone.
  static std::map<std::string, std::string> Objects(const Path& path) {
    std::map<std::string, std::string> texts;
    const auto opened = OpenCheckpoint(PosixStorage(), path);
    EXPECT_THAT(opened, IsOk());
    if (!opened.ok()) return texts;
    for (const ObjectEntry& object : opened->source->index().objects()) {
      if (object.key.find("_extra_state") != std::string::npos) continue;
      const auto text = opened->source->ReadObject(object);
      EXPECT_THAT(text, IsOk());
      if (text.ok()) texts[object.key] = text->json;
    }
    return texts;
  }

  static TrainingState WholeState(const Path& path) {
    auto opened = OpenCheckpoint(PosixStorage(), path);
    EXPECT_THAT(opened, IsOk());
    auto state = UnderstandTrainingState(
        PosixStorage(), std::make_shared<const OpenedCheckpoint>(std::move(opened).value()), {},
        RunDetail::kWhole);
    EXPECT_THAT(state, IsOk());
    return state.ok() ? std::move(state).value() : TrainingState();
  }

  // What no format takes from another one: random states, arguments that are no plain values.
  static void ExpectNoPartOfTheStateDropped(const ConvertReport& report) {
    for (const LeftOutEntry& entry : report.dropped) {
      EXPECT_THAT(entry.key, ::testing::AnyOf(::testing::StartsWith("rng_state"),
                                              ::testing::StartsWith("args."),
                                              ::testing::StartsWith("rerun_state_machine")));
    }
  }

  // What both formats store of a run, and the order of groups apart.
  static void ExpectSameRun(const TrainingRun& expected, const TrainingRun& actual) {
    EXPECT_EQ(actual.iteration, expected.iteration);
    EXPECT_EQ(actual.consumed_samples, expected.consumed_samples);
    EXPECT_EQ(actual.num_floating_point_operations, expected.num_floating_point_operations);
    EXPECT_EQ(actual.schedule, expected.schedule);
    EXPECT_EQ(actual.seed, expected.seed);
    EXPECT_THAT(actual.groups, ::testing::UnorderedElementsAreArray(expected.groups));
  }
};

// Megatron-FSDP's runs, dense and with experts, of several meshes.
TEST_F(ConvertRunTest, GoesToMegatronCoreAndBackUnchanged) {
  const std::vector<std::string> all = {"model.module.", "optimizer.state."};
  for (const std::string& name : testing::GoldenCases(
           "fsdp_dtensor",
           {"dense_fsdp2", "dense_tied_fsdp4", "moe_ep2_fsdp4", "dense_tp2_fsdp2"})) {
    SCOPED_TRACE(name);
    const Path source = RunOf("fsdp_dtensor", name);
    const ConvertOptions there = ToTorchDist(source);
    const auto report = Convert(there);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->target_digest, report->source_digest);
    ExpectNoPartOfTheStateDropped(*report);
    const ConvertOptions back = ToFsdpRun(there.target);
    ASSERT_THAT(Convert(back), IsOk());
    EXPECT_EQ(Tensors(back.target, all), Tensors(source, all));
    const TrainingState first = WholeState(source);
    ExpectSameRun(first.run, WholeState(there.target).run);
    const TrainingState last = WholeState(back.target);
    ExpectSameRun(first.run, last.run);
    // Which parameters decay is stored by Megatron-FSDP alone, and follows from their shapes.
    std::map<std::string, double> decay;
    for (const auto& [weight, group] : first.run.group_of) {
      decay[weight] = first.run.groups[group].weight_decay;
    }
    for (const auto& [weight, group] : last.run.group_of) {
      ASSERT_TRUE(decay.contains(weight)) << weight;
      EXPECT_EQ(last.run.groups[group].weight_decay, decay.at(weight)) << weight;
    }
    EXPECT_EQ(last.run.group_of.size(), first.run.group_of.size());
  }
}

// What Megatron-Core wrote: the exact weights become the weights.
TEST_F(ConvertRunTest, GoesToMegatronFsdpAndBack) {
  for (const std::string& name :
       testing::GoldenCases("torch_dist", {"opt_fully_reshardable_dp1_core016",
                                           "opt_fully_reshardable_tp2dp2_core016",
                                           "opt_fully_reshardable_pp2dp2_core019"})) {
    SCOPED_TRACE(name);
    const Path source = RunOf("torch_dist", name);
    ConvertOptions there = ToFsdpRun(source);
    there.to.choices["transformer_impl"] = "local";
    ASSERT_THAT(Convert(there), IsOk());
    ConvertOptions back = ToTorchDist(there.target);
    back.dtype = DType::kBfloat16;  // of the model's weights, as they were
    ASSERT_THAT(Convert(back), IsOk());
    const std::vector<std::string> all = {"decoder.", "embedding.", "output_layer.", "optimizer."};
    auto expected = Tensors(source, all);
    auto actual = Tensors(back.target, all);
    EXPECT_EQ(actual, expected);
    EXPECT_EQ(WholeState(back.target).run.iteration, WholeState(source).run.iteration);
  }
}

// The form of Megatron-Core up to 0.15: the same tensors, flattened, of any number of files.
TEST_F(ConvertRunTest, GoesToAnOlderFormAndBackUnchanged) {
  const std::vector<std::string> all = {"model.module.", "optimizer.state."};
  for (const char* name : {"dense_fsdp2", "moe_ep2_fsdp4"}) {
    const Path source = RunOf("fsdp_dtensor", name);
    ConvertOptions there = ToTorchDist(source);
    there.to.forms["optimizer-form"] = "fully_sharded_model_space";
    for (const int files : {0, 3}) {
      for (const std::optional<int> level : {std::optional<int>(), std::optional(3)}) {
        SCOPED_TRACE(fmt::format("{}, {} files, {}", name, files, level ? "zstd" : "plain"));
        there.files = files;
        there.zstd_level = level;
        const auto report = Convert(there);
        ASSERT_THAT(report, IsOk());
        EXPECT_EQ(report->target_digest, report->source_digest);
        const ConvertOptions back = ToFsdpRun(there.target);
        ASSERT_THAT(Convert(back), IsOk());
        EXPECT_EQ(Tensors(back.target, all), Tensors(source, all));
        ExpectSameRun(WholeState(source).run, WholeState(there.target).run);
      }
    }
    // The same as the usual form, by other keys of the exact weights.
    ConvertOptions usual = there;
    usual.to.forms.clear();
    usual.target = dir_.path() / "usual";
    ASSERT_THAT(Convert(usual), IsOk());
    const std::vector<std::string> moments = {"optimizer.state.exp_avg"};
    EXPECT_EQ(Tensors(there.target, moments), Tensors(usual.target, moments));
    const auto values = [](const std::map<std::string, std::string>& tensors) {
      std::vector<std::string> digests;
      for (const auto& [key, digest] : tensors) digests.push_back(digest);
      return digests;
    };
    EXPECT_EQ(values(Tensors(there.target, {"optimizer.state.fp32_param."})),
              values(Tensors(usual.target, {"optimizer.state.param."})));
  }
}

// Megatron's default form: the buffers of the ranks that the run had, and however weights are cut.
TEST_F(ConvertRunTest, GoesToBuffersAndBackUnchanged) {
  const std::vector<std::string> all = {"decoder.", "embedding.", "output_layer.", "optimizer."};
  for (const std::string& name : testing::GoldenCases(
           "torch_dist",
           {"opt_dp_reshardable_dp1_core016", "opt_dp_reshardable_dp2_core019",
            "opt_dp_reshardable_tp2dp2_core016", "opt_fully_reshardable_dp1_core016",
            "opt_fully_reshardable_tp2dp2_core016", "opt_fully_reshardable_pp2dp2_core019"})) {
    SCOPED_TRACE(name);
    const Path source = RunOf("torch_dist", name);
    ConvertOptions usual = Between("torch_dist", "torch_dist", source, "usual");
    usual.to.choices["transformer_impl"] = "local";
    usual.overwrite = true;
    ASSERT_THAT(Convert(usual), IsOk());
    for (const std::uint64_t shard_bytes : {0U, 3000U}) {
      ConvertOptions there = usual;
      there.target = dir_.path() / "buffers";
      there.to.forms["optimizer-form"] = "dp_reshardable";
      there.max_shard_bytes = shard_bytes;
      if (shard_bytes > 0) there.zstd_level = 3;
      const auto report = Convert(there);
      ASSERT_THAT(report, IsOk());
      EXPECT_EQ(report->target_digest, report->source_digest);
      EXPECT_TRUE(Tensors(there.target, {"optimizer.state."}).empty());
      ConvertOptions back = usual;
      back.source = there.target;
      back.target = dir_.path() / "back";
      ASSERT_THAT(Convert(back), IsOk());
      EXPECT_EQ(Tensors(back.target, all), Tensors(usual.target, all));
      ExpectSameRun(WholeState(source).run, WholeState(there.target).run);
    }
  }
}

// Which keys, of which shapes, and what is stored beside buffers.
TEST_F(ConvertRunTest, HasTheBuffersOfTheRun) {
  const auto described = [](const Path& path) {
    std::map<std::string, std::string> keys;
    const auto opened = OpenCheckpoint(PosixStorage(), path);
    EXPECT_THAT(opened, IsOk());
    if (!opened.ok()) return keys;
    const CheckpointIndex& index = opened->source->index();
    for (const GlobalTensor& tensor : index.tensors()) {
      std::string& text = keys[tensor.key];
      text = fmt::format("{} {}", DTypeName(tensor.dtype), FormatDims(tensor.shape));
      if (!tensor.key.starts_with("optimizer.")) continue;
      std::vector<std::string> boxes;
      for (const Chunk& chunk : index.chunks(tensor)) boxes.push_back(FormatBox(index.box(chunk)));
      std::ranges::sort(boxes);
      for (const std::string& box : boxes) text += box;
    }
    for (const ObjectEntry& object : index.objects()) {
      std::string& text = keys[object.key];
      if (object.key.find(".per_bucket_numel") == std::string::npos) continue;
      text = opened->source->ReadObject(object).value().json;
    }
    return keys;
  };
  for (const std::string& name : testing::GoldenCases(
           "torch_dist", {"opt_dp_reshardable_dp1_core016", "opt_dp_reshardable_tp2dp2_core016"})) {
    SCOPED_TRACE(name);
    const Path source = RunOf("torch_dist", name);
    ConvertOptions options = Between("torch_dist", "torch_dist", source, "buffers");
    options.to.choices["transformer_impl"] = "local";
    options.to.forms["optimizer-form"] = "dp_reshardable";
    options.overwrite = true;
    ASSERT_THAT(Convert(options), IsOk());
    EXPECT_EQ(described(options.target), described(source));
  }
}

// The golden's arguments lack the size of experts and their routing: no single setting is wrong.
TEST_F(ConvertRunTest, AConfigurationStandsInForArgumentsThatAreAbsent) {
  for (const std::string& name : testing::GoldenCases(
           "torch_dist",
           {"opt_moe_fully_reshardable_ep2_core016", "opt_moe_dp_reshardable_ep2dp4_core019"})) {
    SCOPED_TRACE(name);
    ConvertOptions options =
        Between("torch_dist", "fsdp_dtensor", RunOf("torch_dist", name), "out_" + name);
    const auto refused = PrepareConversion(PosixStorage(), options);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.status().ToString(), HasSubstr("--hf-assets DIR"));
    options.model.assets = dir_.path() / "assets";
    boost::filesystem::create_directories(options.model.assets);
    std::ofstream((options.model.assets / "config.json").string())
        << R"({"model_type": "megatron", "num_hidden_layers": 2, "hidden_size": 32,
               "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
               "head_dim": 8, "vocab_size": 64, "max_position_embeddings": 32,
               "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000,
               "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false,
               "attention_output_bias": false, "num_experts": 4, "num_experts_per_tok": 2,
               "moe_intermediate_size": 24, "norm_topk_prob": true, "mlp_only_layers": [],
               "router_expert_bias": true, "scoring_func": "sigmoid"})";
    const auto report = Convert(options);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->target_digest, report->source_digest);
  }
}

// Also the form that is taken anyway.
TEST_F(ConvertRunTest, WeightsAloneHaveNoFormOfAnOptimizer) {
  for (const auto& [source, weights_only] :
       {std::pair(RunOf("fsdp_dtensor", "dense_fsdp2"), true),
        std::pair(RunOf("torch_dist", "dense_tp1_core016"), false)}) {
    for (const char* form : {"fully_reshardable", "fully_sharded_model_space", "dp_reshardable"}) {
      SCOPED_TRACE(source.string() + form);
      ConvertOptions options = Between("", "torch_dist", source, "refused");
      options.weights_only = weights_only;
      options.to.forms["optimizer-form"] = form;
      const auto prepared = PrepareConversion(PosixStorage(), options);
      ASSERT_FALSE(prepared.ok());
      EXPECT_EQ(prepared.status().kind(), ErrorKind::kUsage);
      EXPECT_THAT(prepared.status().ToString(),
                  HasSubstr("--optimizer-form is about an optimizer"));
      EXPECT_THAT(prepared.status().ToString(), HasSubstr("expected a training run"));
      options.to.forms.clear();
      EXPECT_THAT(PrepareConversion(PosixStorage(), options), IsOk());
    }
  }
}

TEST_F(ConvertRunTest, RefusesBuffersThatWouldNotBeTheRuns) {
  const Path source = RunOf("torch_dist", "opt_dp_reshardable_tp2dp2_core016");
  const auto refused = [&](const auto& change) {
    ConvertOptions options = Between("torch_dist", "torch_dist", source, "refused");
    options.to.forms["optimizer-form"] = "dp_reshardable";
    change(options);
    const auto prepared = PrepareConversion(PosixStorage(), options);
    return prepared.ok() ? std::string("nothing") : prepared.status().ToString();
  };
  EXPECT_THAT(refused([](ConvertOptions& options) { options.dtype = DType::kFloat32; }),
              AllOf(HasSubstr("of another dtype"),
                    HasSubstr("ckpt-convert --dtype bfloat16 stores the weights so")));
  EXPECT_THAT(refused([](ConvertOptions& options) {
                options.to.choices["transformer_impl"] = "transformer_engine";
              }),
              HasSubstr("another implementation of layers"));
  EXPECT_THAT(
      refused([](ConvertOptions& options) { options.to.forms["expert-optimizer"] = "separate"; }),
      HasSubstr("the run's experts have no buffers of their own"));
  EXPECT_THAT(refused([](ConvertOptions& options) {
                options.source = RunOf("torch_dist", "opt_fully_reshardable_dp1_core016");
              }),
              HasSubstr("args.transformer_impl"));
  EXPECT_THAT(refused([](ConvertOptions& options) {
                options.to.container = FindFormat("fsdp_dtensor").value();
              }),
              HasSubstr("the target does not have this option"));
}

// Before Core 0.16 the optimizer's tensors were slices of flattened parameters. One that is not
// distributed counts updates in a tensor. By default, one that is has all parameters in buffers.
TEST_F(ConvertRunTest, ReadsFormsThatAreNotWritten) {
  for (const std::string& name : testing::GoldenCases(
           "torch_dist", {"opt_model_space_dp1_core012", "opt_model_space_dp2_core013",
                          "opt_model_space_tp2dp2_core015", "opt_float16_dp1_core016",
                          "opt_fp32_dp2_core016", "opt_dp_reshardable_dp1_core016",
                          "opt_dp_reshardable_dp2_core019", "opt_dp_reshardable_tp2dp2_core016"})) {
    SCOPED_TRACE(name);
    ConvertOptions options = ToFsdpRun(RunOf("torch_dist", name));
    ASSERT_THAT(Convert(options), IsOk());
    EXPECT_EQ(WholeState(options.target).run.finished_updates(), 2);
  }
}

TEST_F(ConvertRunTest, SaysWhatAFormDoesNotHold) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"opt_gather_scatter_tp2dp2_core014", kFormReason}};
  for (const auto& [name, reason] : cases) {
    SCOPED_TRACE(name);
    ConvertOptions options = ToFsdpRun(RunOf("torch_dist", name));
    const auto prepared = PrepareConversion(PosixStorage(), options);
    ASSERT_THAT(prepared, FailsWith(ErrorKind::kUnsupported));
    EXPECT_THAT(prepared.status().first().message, HasSubstr(reason));
    options.weights_only = true;
    EXPECT_THAT(PrepareConversion(PosixStorage(), options), IsOk());
  }
}

TEST_F(ConvertRunTest, TakesTheWeightsAloneOnRequest) {
  ConvertOptions options = ToTorchDist(RunOf("fsdp_dtensor", "dense_fsdp2"));
  options.weights_only = true;
  const auto prepared = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->checkpoint_directory, "release");
  EXPECT_FALSE(prepared->is_run);
  const bool lists_moments =
      std::ranges::any_of(prepared->model.left_out, [](const LeftOutEntry& entry) {
        return entry.key.starts_with("optimizer.state.") && entry.bytes > 0;
      });
  EXPECT_TRUE(lists_moments);
}

TEST_F(ConvertRunTest, RefusesPartsOfARun) {
  ConvertOptions options = ToTorchDist(RunOf("fsdp_dtensor", "dense_fsdp2"));
  options.model.drop = {"*final_layernorm*"};
  EXPECT_THAT(PrepareConversion(PosixStorage(), options), FailsWith(ErrorKind::kUsage));
  ConvertOptions rounded = ToFsdpRun(RunOf("torch_dist", "opt_fully_reshardable_dp1_core016"));
  rounded.dtype = DType::kBfloat16;
  EXPECT_THAT(PrepareConversion(PosixStorage(), rounded), FailsWith(ErrorKind::kUsage));
}

// Under the names of a program with FSDP2 and back, in both forms of its optimizer.
TEST_F(ConvertRunTest, GoesToFsdp2AndBackUnchanged) {
  const std::vector<std::string> all = {"model.module.", "optimizer.state."};
  for (const char* name : {"dense_fsdp2", "moe_ep2_fsdp4"}) {
    for (const char* form : {"nested", "flattened"}) {
      SCOPED_TRACE(fmt::format("{}, {}", name, form));
      const Path source = RunOf("fsdp_dtensor", name);
      ConvertOptions there = Between("fsdp_dtensor", "dcp", source, "fsdp2");
      there.overwrite = true;
      there.to.naming = "fsdp2";
      there.to.forms["optimizer-state-dict"] = form;
      if (form == std::string_view("flattened")) there.zstd_level = 3;
      const auto report = Convert(there);
      ASSERT_THAT(report, IsOk());
      EXPECT_EQ(report->target_format, "dcp");
      EXPECT_EQ(report->target_digest, report->source_digest);
      ExpectNoPartOfTheStateDropped(*report);
      const TrainingState first = WholeState(source);
      const TrainingState between = WholeState(there.target);
      EXPECT_EQ(between.run.iteration, first.run.iteration);
      EXPECT_EQ(between.run.schedule, first.run.schedule);
      ConvertOptions back = Between("fsdp2", "fsdp_dtensor", there.target, "again");
      back.overwrite = true;
      back.to.choices["transformer_impl"] =
          first.weights.match.layout.choices.at("transformer_impl");
      back.to.choices["expert_names"] = first.weights.match.layout.choices.at("expert_names");
      ASSERT_THAT(Convert(back), IsOk());
      EXPECT_EQ(Tensors(back.target, all), Tensors(source, all));
      const TrainingState last = WholeState(back.target);
      EXPECT_EQ(last.run.iteration, first.run.iteration);
      EXPECT_EQ(last.run.consumed_samples, first.run.consumed_samples);
      EXPECT_EQ(last.run.num_floating_point_operations, first.run.num_floating_point_operations);
      EXPECT_EQ(last.run.schedule, first.run.schedule);
      std::map<std::string, double> decay;
      for (const auto& [weight, group] : first.run.group_of) {
        decay[weight] = first.run.groups[group].weight_decay;
      }
      EXPECT_EQ(last.run.group_of.size(), first.run.group_of.size());
      for (const auto& [weight, group] : last.run.group_of) {
        ASSERT_TRUE(decay.contains(weight)) << weight;
        EXPECT_EQ(last.run.groups[group].weight_decay, decay.at(weight)) << weight;
      }
    }
  }
}

// Megatron-Core keeps exact weights beside rounded ones: there is one of each in FSDP2's names.
TEST_F(ConvertRunTest, GoesFromMegatronCoreToFsdp2AndBack) {
  const Path source = RunOf("torch_dist", "opt_fully_reshardable_dp1_core016");
  ConvertOptions there = Between("torch_dist", "dcp", source, "fsdp2");
  there.to.naming = "fsdp2";
  ASSERT_THAT(Convert(there), IsOk());
  ConvertOptions back = Between("fsdp2", "torch_dist", there.target, "again");
  back.dtype = DType::kBfloat16;
  ASSERT_THAT(Convert(back), IsOk());
  const std::vector<std::string> all = {"decoder.", "embedding.", "output_layer.", "optimizer."};
  EXPECT_EQ(Tensors(back.target, all), Tensors(source, all));
}

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
                            ? RunOf("torch_dist", "opt_fully_reshardable_tp2dp2_core016")
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

// Loaders of FSDP2 ask for a tied tensor under each of its names, whatever the container.
TEST_F(ConvertRunTest, HasTheCopiesOfItsNames) {
  for (const char* container : {"hdf5", "torch_save", "dcp"}) {
    ConvertOptions options =
        Between("fsdp_dtensor", container, RunOf("fsdp_dtensor", "dense_tied_fsdp4"), container);
    options.to.naming = "fsdp2";
    ASSERT_THAT(Convert(options), IsOk());
    const auto opened = OpenCheckpoint(PosixStorage(), options.target);
    ASSERT_THAT(opened, IsOk());
    EXPECT_NE(opened->source->index().FindTensor("model.lm_head.weight"), nullptr) << container;
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

// A file of the weights holds the run's objects, but none that tell of an optimizer without moments.
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

TEST_F(ConvertRunTest, DependsOnNeitherThreadsNorBudget) {
  ConvertOptions options = ToTorchDist(RunOf("fsdp_dtensor", "moe_ep2_fsdp4"));
  options.files = 2;
  ASSERT_THAT(Convert(options), IsOk());
  EXPECT_EQ(Content(options.target / "latest_checkpointed_iteration.txt"), "3");
  ExpectSameForAnyThreadsAndBudget(options.target, options);
}

}  // namespace
}  // namespace ckpt
