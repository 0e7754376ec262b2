#include "formats/megatron/bridge_files.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/read.h"
#include "core/io/memory_storage.h"
#include "core/json/json_reader.h"
#include "formats/megatron/internal/run_config.h"
#include "formats/megatron/internal/train_state.h"
#include "formats/megatron/internal/yaml.h"
#include "formats/megatron/plan_root.h"
#include "formats/megatron/root.h"
#include "tests/testing/matchers.h"

namespace ckpt::megatron {
namespace {

using layout::Configuration;
using layout::Value;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::IsOkAndHolds;
using ::testing::Not;
using ::testing::Pair;

TrainingRun SomeRun() {
  TrainingRun run;
  run.args = {{"num_layers", 2},
              {"hidden_size", 64},
              {"ffn_hidden_size", 256},
              {"num_attention_heads", 4},
              {"num_query_groups", 2},
              {"group_query_attention", true},
              {"kv_channels", Value()},
              {"normalization", "RMSNorm"},
              {"layernorm_epsilon", 1e-6},
              {"vocab_size", 1000},
              {"padded_vocab_size", 1024},
              {"make_vocab_size_divisible_by", 128},
              {"untie_embeddings_and_output_weights", true},
              {"swiglu", true},
              {"add_bias_linear", false},
              {"rotary_base", 1e6},
              {"position_embedding_type", "rope"},
              {"seq_length", 128},
              {"num_experts", 8},
              {"moe_layer_freq", Value::List{0, 1}},
              {"transformer_impl", "local"},
              {"bf16", true},
              {"global_batch_size", 16},
              {"lr", 1e-4},
              {"lr_decay_style", "cosine"},
              {"seed", 7}};
  run.iteration = 12;
  run.consumed_samples = 192;
  run.num_floating_point_operations = 1.5e20;
  run.groups = {{}};
  return run;
}

class BridgeFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_THAT(storage_->MakeDirectories(kDirectory), IsOk()); }

  void Write(std::string_view name, ByteSpan content) {
    ASSERT_THAT(WriteSmallFile(*storage_, Path(kDirectory) / std::string(name), content), IsOk());
  }
  void WriteRun(const TrainingRun& run) {
    Write(kRunConfigFile, AsBytes(WriteRunConfig(run, {.format = "torch_dist"})));
    Write(kTrainStateFile, WriteTrainState(run));
  }
  Result<std::unique_ptr<CheckpointSource>> Open() {
    CKPT_ASSIGN_OR_RETURN(std::unique_ptr<CheckpointSource> inner,
                          MakeMemorySource({{.key = "w",
                                             .dtype = DType::kUint8,
                                             .shape = {3},
                                             .values = Bytes(3, std::byte{5})}}));
    return WithBridgeFiles(std::move(inner), *storage_, kDirectory);
  }

  static constexpr const char* kDirectory = "/run/iter_0000012";
  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(BridgeFilesTest, AreTwoObjectsOfTheCheckpoint) {
  WriteRun(SomeRun());
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  const CheckpointIndex& index = (*source)->index();
  ASSERT_EQ(index.objects().size(), 2U);
  EXPECT_EQ(index.objects()[0].key, "run_config");
  EXPECT_EQ(index.objects()[1].key, "train_state");
  const auto state = (*source)->ReadObject(index.objects()[1]);
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(state->json,
            R"({"consumed_train_samples":192,"consumed_valid_samples":0,"do_test":false,)"
            R"("do_train":false,"do_valid":false,"floating_point_operations_so_far":1.5e+20,)"
            R"("skipped_train_samples":0,"step":12})");
  // Tensors are those of the checkpoint.
  Bytes values(3);
  ASSERT_THAT(
      ReadBox(**source, index.tensors()[0], WholeBox(index.tensors()[0].shape), values, 100),
      IsOk());
  EXPECT_EQ(values, Bytes(3, std::byte{5}));
}

TEST_F(BridgeFilesTest, AreNotMissed) {
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT((*source)->index().objects(), IsEmpty());
  EXPECT_THAT(ReadBridgeArgs(**source), IsOkAndHolds(IsEmpty()));
}

// What Megatron-Bridge calls otherwise, comes back under the name of the argument.
TEST_F(BridgeFilesTest, GiveTheArgumentsBack) {
  const TrainingRun run = SomeRun();
  WriteRun(run);
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  const auto args = ReadBridgeArgs(**source);
  ASSERT_THAT(args, IsOk());
  for (const auto& [name, value] : run.args)
    EXPECT_THAT(*args, Contains(Pair(name, value))) << name;
  EXPECT_THAT(*args, Contains(Pair("consumed_train_samples", Value(192))));
  EXPECT_THAT(*args, Contains(Pair("num_floating_point_operations_so_far", Value(1.5e20))));
}

Configuration Model(Configuration more) {
  more.insert({"model.num_layers", 2});
  return more;
}

// Not every version of the class has the member.
TEST(RunConfigTest, NamesTheGateOfASharedExpertWhereThereIsOne) {
  TrainingRun run = SomeRun();
  run.args.emplace_back("moe_shared_expert_gate", false);
  EXPECT_THAT(WriteRunConfig(run, {.format = "torch_dist"}), Not(HasSubstr("shared_expert_gate")));
  run.args.back().second = true;
  EXPECT_THAT(WriteRunConfig(run, {.format = "torch_dist"}),
              HasSubstr("  moe_shared_expert_gate: true\n"));
}

// The one class with members for yarn has other defaults, which must not become the model's.
TEST(RunConfigTest, LeavesNoDefaultOfTheClassWithYarn) {
  TrainingRun run = SomeRun();
  for (auto& [name, value] : run.args) {
    if (name == "position_embedding_type") value = "yarn";
    if (name == "bf16") value = false;
  }
  run.args.insert(run.args.end(), {{"yarn_rotary_scaling_factor", 4.0},
                                   {"yarn_original_max_position_embeddings", 32},
                                   {"yarn_mscale", Value()},
                                   {"activation_func_clamp_value", Value()}});
  const std::string text = WriteRunConfig(run, {.format = "torch_dist"});
  for (const char* line :
       {"_target_: \"megatron.bridge.models.gpt_oss.gpt_oss_provider.GPTOSSProvider\"",
        "yarn_rotary_scaling_factor: 4.0", "yarn_original_max_position_embeddings: 32",
        "position_embedding_type: \"yarn\"", "window_size: null", "window_attn_skip_freq: null",
        "softmax_type: \"vanilla\"", "glu_linear_offset: 0.0", "activation_func_clamp_value: null",
        "moe_permute_fusion: false", "moe_token_dispatcher_type: \"allgather\"",
        "bias_activation_fusion: false", "_target_: torch.float32"}) {
    EXPECT_THAT(text, HasSubstr(std::string(" ") + line + "\n"));
  }
  EXPECT_THAT(text, Not(HasSubstr("yarn_mscale")));
  // A run of Megatron-LM has the options without the prefix.
  std::erase_if(run.args, [](const auto& arg) { return arg.first.starts_with("yarn_"); });
  run.args.emplace_back("rotary_scaling_factor", 8.0);
  EXPECT_THAT(WriteRunConfig(run, {.format = "torch_dist"}),
              HasSubstr("  yarn_rotary_scaling_factor: 8.0\n"));
}

// Without yarn no member is named that only that class has.
TEST(RunConfigTest, NamesNoMemberOfYarnWithoutIt) {
  TrainingRun run = SomeRun();
  run.args.emplace_back("yarn_rotary_scaling_factor", 4.0);
  const std::string text = WriteRunConfig(run, {.format = "torch_dist"});
  EXPECT_THAT(text, HasSubstr("gpt_provider.GPTModelProvider"));
  EXPECT_THAT(text, Not(HasSubstr("yarn")));
}

TEST(RunConfigTest, ReadsWhatHasNoNameAmongTheArguments) {
  const auto args = ArgsOfRunConfig(Model({{"model.activation_func._target_", "torch._C._nn.gelu"},
                                           {"model.gated_linear_unit", false},
                                           {"model.vocab_size", 1000},
                                           {"model.should_pad_vocab", true},
                                           {"model.make_vocab_size_divisible_by", 64},
                                           {"model.tensor_model_parallel_size", 4},
                                           {"model.num_query_groups", Value()},
                                           {"model.share_embeddings_and_output_weights", true},
                                           {"train.seq_length", 5},
                                           {"ddp.seq_length", 6}}),
                                    "run_config");
  ASSERT_THAT(args, IsOk());
  EXPECT_EQ(args->at("swiglu"), Value(false));
  EXPECT_EQ(args->at("padded_vocab_size"), Value(1024));
  EXPECT_EQ(args->at("group_query_attention"), Value(false));
  EXPECT_EQ(args->at("untie_embeddings_and_output_weights"), Value(false));
  EXPECT_EQ(args->at("seq_length"), Value(5));
  // A configuration of a builder has them one level lower.
  const auto lower =
      ArgsOfRunConfig({{"model.transformer.num_layers", 3}, {"model.seq_length", 8}}, "run_config");
  ASSERT_THAT(lower, IsOk());
  EXPECT_EQ(lower->at("num_layers"), Value(3));
  EXPECT_EQ(lower->at("max_position_embeddings"), Value(8));
  EXPECT_THAT(ArgsOfRunConfig({{"train.seed", 1}}, "run_config"), IsOkAndHolds(IsEmpty()));
}

TEST(RunConfigTest, RefusesAnActivationThatNoArgumentSays) {
  const auto args =
      ArgsOfRunConfig(Model({{"model.gated_linear_unit", true},
                             {"model.activation_func._target_", "torch._C._nn.gelu"}}),
                      "run_config");
  ASSERT_THAT(args, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(args.status().ToString(), HasSubstr("\"gelu\" with a gate"));
}

TEST_F(BridgeFilesTest, RefuseATrainStateThatIsNone) {
  Write(kTrainStateFile, AsBytes("not a torch file"));
  const auto source = Open();
  ASSERT_FALSE(source.ok());
  EXPECT_THAT(source.status().ToString(), HasSubstr("train_state.pt"));
}

// The folder of the tokenizer has its files alone.
TEST_F(BridgeFilesTest, CopyTheTokenizer) {
  WritePlan plan;
  const std::vector<WriteCopy> files = {{.from = "/m/config.json", .name = "config.json"},
                                        {.from = "/m/tokenizer.json", .name = "tokenizer.json"},
                                        {.from = "/m/vocab.json", .name = "vocab.json"}};
  AddBridgeFiles(SomeRun(), {.format = "torch_dist", .side_files = files, .directory = "a/"}, plan);
  std::vector<std::string> names;
  for (const WriteCopy& copy : plan.copies) names.push_back(copy.name);
  EXPECT_THAT(names, ElementsAre("a/tokenizer/tokenizer.json", "a/tokenizer/vocab.json"));
  names.clear();
  for (const WriteFile& file : plan.files) names.push_back(file.name);
  EXPECT_THAT(names, ElementsAre("a/run_config.yaml", "a/train_state.pt"));
}

// Megatron-Bridge asks latest_train_state.pt first, and its first versions wrote no other tracker.
TEST_F(BridgeFilesTest, MoveWithTheTracker) {
  const Path root = "/run";
  const Path latest = root / std::string(kLatestTrainState);
  WriteRun(SomeRun());
  ASSERT_THAT(PointTrackerTo(*storage_, root, 12), IsOk());
  EXPECT_THAT(ReadTracker(*storage_, root), IsOkAndHolds("iter_0000012"));
  ASSERT_THAT(storage_->RemoveAll(root / std::string(kTrackerName)), IsOk());
  EXPECT_THAT(ReadTracker(*storage_, root), IsOkAndHolds("iter_0000012"));
  // A checkpoint without a train state: the old one would name the wrong checkpoint.
  ASSERT_THAT(PointTrackerTo(*storage_, root, 13), IsOk());
  EXPECT_EQ(storage_->Stat(latest).value().type, FileType::kMissing);
  EXPECT_THAT(ReadTracker(*storage_, root), IsOkAndHolds("iter_0000013"));
}

}  // namespace
}  // namespace ckpt::megatron
