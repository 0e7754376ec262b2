// What is saved on one mesh is what is loaded on every other, bit for bit.
#include <algorithm>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/verbs/model_source.h"
#include "converters/verbs/training_state.h"
#include "converters/verbs/weight_reader.h"
#include "core/base/units.h"
#include "core/io/forwarding_storage.h"
#include "core/io/memory_storage.h"
#include "core/manifest/manifest.h"
#include "formats/megatron/root.h"
#include "formats/registry/registry.h"
#include "tests/reliability/small_model.h"
#include "tests/testing/counting_storage.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/checkpoint/state_pattern.h"
#include "tests/trainer/run/small_session.h"
#include "trainer/run/internal/load_state.h"

namespace ckpt::train {
namespace {

using testing::CheckState;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Pattern;
using testing::SaveState;
using testing::SetState;
using testing::SmallSessions;
using testing::TinySettings;
using testing::With;
using trainer::HostGroup;

const Path kSaveRoot = "/runs/a";

struct Mesh {
  const char* name;
  int ranks;
  layout::Configuration settings = {};
};

std::vector<Mesh> Meshes() {
  return {{"one", 1},
          {"fsdp", 3},
          {"hsdp", 4, {{"num_distributed_optimizer_instances", 2}}},
          {"hfsdp",
           4,
           {{"num_distributed_optimizer_instances", 2}, {"outer_dp_sharding_strategy", "optim"}}},
          {"replicas", 2, {{"data_parallel_sharding_strategy", "no_shard"}}},
          {"experts", 4, {{"expert_model_parallel_size", 2}}}};
}

struct Kind {
  const char* name;
  layout::Configuration settings = {};
  bool has_all_pairs = false;  // else from each mesh to the next, and to itself
};
void PrintTo(const Kind& kind, std::ostream* os) { *os << kind.name; }

const layout::Configuration kExperts = {{"num_layers", 2},
                                        {"num_experts", 4},
                                        {"moe_ffn_hidden_size", 5},
                                        {"moe_layer_freq", layout::Value::List{0, 1}}};

std::vector<Kind> Kinds() {
  return {
      {"Dense", {{"num_layers", 2}, {"num_query_groups", 1}}, true},
      {"Experts", kExperts, true},
      {"ExpertsInEveryLayer", With(kExperts, {{"moe_layer_freq", 1}})},
      {"AttentionBiases", {{"add_qkv_bias", true}, {"add_attention_output_bias", true}}},
      {"BiasesOfTheMlpAlone",
       {{"add_bias_linear", true}, {"add_qkv_bias", false}, {"add_attention_output_bias", false}}},
      {"NormedBiasedAttentionWithExperts",
       With(kExperts,
            {{"add_qkv_bias", true}, {"add_attention_output_bias", true}, {"qk_layernorm", true}})},
      {"LatentWithExpertBias", With(kExperts, {{"multi_latent_attention", true},
                                               {"q_lora_rank", 6},
                                               {"kv_lora_rank", 5},
                                               {"qk_head_dim", 3},
                                               {"qk_pos_emb_head_dim", 2},
                                               {"kv_channels", 5},
                                               {"v_head_dim", 3},
                                               {"moe_router_score_function", "sigmoid"},
                                               {"moe_router_enable_expert_bias", true},
                                               {"moe_shared_expert_intermediate_size", 7}})},
      {"SharedExpertWithGate", With(kExperts, {{"moe_shared_expert_intermediate_size", 7},
                                               {"moe_shared_expert_gate", true}})},
      {"NormsBehindAndOverAllHeads",
       {{"post_layernorm", true}, {"qk_layernorm", true}, {"qk_layernorm_over_heads", true}}},
      {"Tied", {{"untie_embeddings_and_output_weights", false}}},
      {"Frozen", {{"frozen", layout::Value::List{"embedding.*", "*.linear_fc2.*"}}}},
      {"PaddedVocabulary", {{"padded_vocab_size", 16}}},
      {"Sgd", {{"optimizer", "sgd"}}},
      {"MomentsOnTheHost", {{"optimizer_cpu_offload", true}}},
      {"Bfloat16", {{"bf16", true}}},
      {"Canonical", {{"reduction", "canonical"}}},
      {"Biases", {{"add_bias_linear", true}, {"add_qkv_bias", true}}},
      {"SequentialExpertsOfLocalModules",
       With(kExperts, {{"transformer_impl", "local"}, {"expert_names", "sequential"}})}};
}

// The checkpoints of one storage.
class SaveAndLoadTest : public ::testing::Test {
 protected:
  // Saves state number `state` as iteration `iteration`.
  Status Save(const layout::Configuration& settings, int ranks, std::uint64_t state,
              std::int64_t iteration, bool is_async = false) {
    CKPT_ASSIGN_OR_RETURN(
        SmallSessions sessions,
        SmallSessions::Create(*storage_, With(settings, {{"save", kSaveRoot.string()}}), ranks));
    sessions.set_async_save(is_async);
    return sessions.Run([&](RankSession& session, HostGroup&) -> Status {
      CKPT_RETURN_IF_ERROR(SaveState(session, state, iteration));
      // Training goes on beside an asynchronous save.
      CKPT_RETURN_IF_ERROR(SetState(session.trainer(), state + 1000));
      return session.checkpoints().Finish();
    });
  }

  // Loads the newest checkpoint, which must be state number `state` at `iteration`.
  Status Load(const layout::Configuration& settings, int ranks, std::uint64_t state,
              std::int64_t iteration) {
    CKPT_ASSIGN_OR_RETURN(
        SmallSessions sessions,
        SmallSessions::Create(
            *storage_, With(settings, {{"load", kSaveRoot.string()}, {"prove", true}}), ranks));
    return sessions.Run([&](RankSession& session, HostGroup&) -> Status {
      CKPT_ASSIGN_OR_RETURN(const RunProgress progress, session.Start());
      EXPECT_EQ(progress.iteration, iteration);
      EXPECT_EQ(progress.consumed_samples, iteration);
      return CheckState(session.trainer(), state);
    });
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

// A kind in a format that holds runs.
using KindIn = std::tuple<Kind, const char*>;
class EveryKindTest : public SaveAndLoadTest, public ::testing::WithParamInterface<KindIn> {};

TEST_P(EveryKindTest, IsTheSameOnEveryPairOfMeshes) {
  const auto& [kind, format] = GetParam();
  const layout::Configuration model =
      With(With(TinySettings(), kind.settings), {{"save_format", format}});
  std::vector<Mesh> meshes = Meshes();
  if (!model.contains("num_experts")) meshes.pop_back();
  for (std::size_t from = 0; from < meshes.size(); ++from) {
    const auto iteration = static_cast<std::int64_t>(from + 1);
    const std::uint64_t state = from + 1;
    ASSERT_THAT(Save(With(model, meshes[from].settings), meshes[from].ranks, state, iteration),
                IsOk())
        << meshes[from].name;
    for (std::size_t to = 0; to < meshes.size(); ++to) {
      const bool is_next = to == from || to == (from + 1) % meshes.size();
      if (!is_next && !kind.has_all_pairs) continue;
      // What was said of the mesh that saved is not what this one is.
      const layout::Configuration here =
          With({{"num_distributed_optimizer_instances", 1},
                {"outer_dp_sharding_strategy", "no_shard"},
                {"data_parallel_sharding_strategy", "optim_grads_params"},
                {"expert_model_parallel_size", 1},
                {"global_batch_size", meshes[to].ranks}},
               meshes[to].settings);
      EXPECT_THAT(Load(here, meshes[to].ranks, state, iteration), IsOk())
          << meshes[from].name << " to " << meshes[to].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryKindTest,
                         ::testing::Combine(::testing::ValuesIn(Kinds()),
                                            ::testing::Values("fsdp_dtensor", "torch_dist", "fsdp2",
                                                              "hdf5")),
                         [](const auto& test) {
                           const std::string_view format = std::get<1>(test.param);
                           return std::get<0>(test.param).name +
                                  std::string(format == "torch_dist" ? "InTorchDist"
                                              : format == "fsdp2"    ? "InFsdp2"
                                              : format == "hdf5"     ? "InHdf5"
                                                                     : "");
                         });

TEST_F(SaveAndLoadTest, InTheBackgroundGivesTheSameBytes) {
  const layout::Configuration settings = With(TinySettings(), kExperts);
  for (const int ranks : {1, 2, 4}) {
    ASSERT_THAT(Save(settings, ranks, 5, 1), IsOk());
    const auto at_once = testing::ReadTree(*storage_, kSaveRoot);
    ASSERT_THAT(at_once, IsOk());
    ASSERT_THAT(storage_->RemoveAll(kSaveRoot), IsOk());
    ASSERT_THAT(Save(settings, ranks, 5, 1, true), IsOk());
    const auto beside = testing::ReadTree(*storage_, kSaveRoot);
    ASSERT_THAT(beside, IsOk());
    EXPECT_TRUE(*at_once == *beside) << ranks;
    EXPECT_GE(at_once->size(), static_cast<std::size_t>(ranks) + 2);
  }
}

TEST_F(SaveAndLoadTest, WritesTheSameBytesWhateverTheRunSavedBefore) {
  const layout::Configuration settings =
      With(With(TinySettings(), kExperts), {{"save", kSaveRoot.string()}});
  for (const Mesh& mesh : Meshes()) {
    SCOPED_TRACE(mesh.name);
    std::vector<testing::Tree> newest;
    for (const std::vector<std::int64_t>& iterations :
         {std::vector<std::int64_t>{12}, std::vector<std::int64_t>{3, 7, 12}}) {
      auto sessions = SmallSessions::Create(*storage_, With(settings, mesh.settings), mesh.ranks);
      ASSERT_THAT(sessions, IsOk());
      ASSERT_THAT(sessions->Run([&](RankSession& session, HostGroup&) -> Status {
        for (const std::int64_t iteration : iterations) {
          CKPT_RETURN_IF_ERROR(
              SaveState(session, static_cast<std::uint64_t>(iteration), iteration));
        }
        return OkStatus();
      }),
                  IsOk());
      const auto tree = testing::ReadTree(*storage_, kSaveRoot / "iter_0000012");
      ASSERT_THAT(tree, IsOk());
      newest.push_back(*tree);
      ASSERT_THAT(storage_->RemoveAll(kSaveRoot), IsOk());
    }
    EXPECT_TRUE(newest[0] == newest[1]);
  }
}

// The ranks' parts end within blocks, which are checked all the same. The headers of stored
// tensors, which every rank reads, are the rest.
TEST_F(SaveAndLoadTest, ReadsNoByteTwiceForMoreRanksThanSavedIt) {
  const layout::Configuration settings =
      With(TinySettings(), {{"hidden_size", 128}, {"ffn_hidden_size", 6000}});
  ASSERT_THAT(Save(settings, 2, 3, 1), IsOk());
  const auto tree = testing::ReadTree(*storage_, kSaveRoot / "iter_0000001");
  ASSERT_THAT(tree, IsOk());
  std::uint64_t stored = 0;
  for (const auto& [name, content] : *tree) stored += content.size();
  ASSERT_GT(stored, 8 * kManifestBlockBytes);
  testing::CountingStorage counting(*storage_);
  auto sessions =
      SmallSessions::Create(counting, {{"load", kSaveRoot.string()}, {"global_batch_size", 8}}, 8);
  ASSERT_THAT(sessions, IsOk());
  ASSERT_THAT(sessions->Run([](RankSession& session, HostGroup&) -> Status {
    CKPT_RETURN_IF_ERROR(session.Start().status());
    return CheckState(session.trainer(), 3);
  }),
              IsOk());
  EXPECT_GE(counting.bytes_read(), stored);
  EXPECT_LE(counting.bytes_read(), stored + stored / 32);
}

TEST_F(SaveAndLoadTest, IsDoneOnlyWhenAllIsDurableUnderItsName) {
  const auto exists = [&](const std::string& name) {
    return storage_->Stat(kSaveRoot / name).value().type != FileType::kMissing;
  };
  ASSERT_THAT(Save(TinySettings(), 2, 1, 7, true), IsOk());
  EXPECT_TRUE(exists("iter_0000007/ckptkit.json"));
  EXPECT_TRUE(exists("iter_0000007/.metadata"));
  EXPECT_TRUE(exists("latest_checkpointed_iteration.txt"));
  EXPECT_FALSE(exists("iter_0000007.ckptkit-partial"));
}

// A disk of its own on each node, and `save` names a folder on each.
TEST_F(SaveAndLoadTest, PublishesNothingWhoseFilesLieElsewhere) {
  const std::unique_ptr<Storage> here = MakeMemoryStorage();
  const std::unique_ptr<Storage> elsewhere = MakeMemoryStorage();
  auto sessions = SmallSessions::Create(*here, With(TinySettings(), {{"save", "/runs/split"}}), 2);
  ASSERT_THAT(sessions, IsOk());
  sessions->storage_of = [&](int rank) -> Storage& { return rank == 0 ? *here : *elsewhere; };
  const Status saved =
      sessions->Run([](RankSession& session, HostGroup&) { return SaveState(session, 1, 1); });
  EXPECT_THAT(saved, FailsWith(ErrorKind::kMissingFile));
  EXPECT_THAT(saved.ToString(), HasSubstr("__1_0.distcp"));
  EXPECT_THAT(megatron::ListIterations(*here, "/runs/split"),
              testing::IsOkAndHolds(::testing::IsEmpty()));
}

TEST_F(SaveAndLoadTest, KeepsTheNewestAndNoMore) {
  for (const std::int64_t iteration : {1, 2, 3, 4}) {
    ASSERT_THAT(Save(With(TinySettings(), {{"keep_checkpoints", 2}}), 2,
                     static_cast<std::uint64_t>(iteration), iteration),
                IsOk());
  }
  const auto entries = storage_->List(kSaveRoot);
  ASSERT_THAT(entries, IsOk());
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
  EXPECT_THAT(names, ::testing::ElementsAre("iter_0000003", "iter_0000004",
                                            "latest_checkpointed_iteration.txt"));
  EXPECT_THAT(Load({}, 1, 4, 4), IsOk());
}

// Keeps what it should remove.
class FullHands final : public ForwardingStorage {
 public:
  using ForwardingStorage::ForwardingStorage;
  Status RemoveAll(const Path& path) override {
    const bool is_hidden = path.string().ends_with(".ckptkit-removed");
    if (is_hidden && behind().Stat(path)->type != FileType::kMissing) {
      return Error(ErrorKind::kIo, "not removed").File(path.string());
    }
    return behind().RemoveAll(path);
  }
};

// It goes on beside training, so that the save has succeeded before.
TEST_F(SaveAndLoadTest, TellsOfOldCheckpointsThatItCannotRemove) {
  FullHands storage(*storage_);
  auto sessions = SmallSessions::Create(
      storage, With(TinySettings(), {{"keep_checkpoints", 1}, {"save", kSaveRoot.string()}}), 2);
  ASSERT_THAT(sessions, IsOk());
  const Status ended = sessions->Run([](RankSession& session, HostGroup&) -> Status {
    CKPT_RETURN_IF_ERROR(SaveState(session, 1, 1));
    EXPECT_THAT(SaveState(session, 2, 2), IsOk());
    return session.checkpoints().Finish();
  });
  EXPECT_THAT(ended, FailsWith(ErrorKind::kIo));
  EXPECT_THAT(ended.ToString(), HasSubstr("keep_checkpoints"));
  EXPECT_THAT(Load({}, 1, 2, 2), IsOk());
}

// The keys of weights in the newest checkpoint.
std::set<std::string> KeysOf(Storage& storage, std::int64_t iteration) {
  const auto opened =
      OpenCheckpoint(storage, kSaveRoot / ("iter_000000" + std::to_string(iteration)));
  std::set<std::string> keys;
  EXPECT_THAT(opened, IsOk());
  if (!opened.ok()) return keys;
  for (const GlobalTensor& tensor : opened->source->index().tensors()) keys.insert(tensor.key);
  return keys;
}

bool AnyContains(const std::set<std::string>& keys, std::string_view part) {
  return std::ranges::any_of(
      keys, [&](const std::string& key) { return key.find(part) != std::string::npos; });
}

// A conversion alone makes the buffers of other ranks.
TEST_F(SaveAndLoadTest, RefusesAFormThatOnlyConversionsHave) {
  const layout::Configuration settings =
      With(TinySettings(), {{"save_format", "torch_dist"}, {"optimizer_form", "dp_reshardable"}});
  const std::string refused = Save(settings, 1, 1, 1).ToString();
  EXPECT_THAT(refused, ::testing::HasSubstr("setting optimizer_form names a form that only "
                                            "conversions make: expected fully_reshardable, "
                                            "fully_sharded_model_space, found \"dp_reshardable\""));
  EXPECT_THAT(refused, ::testing::HasSubstr("ckpt-convert convert --to torch_dist "
                                            "--optimizer-form dp_reshardable"));
}

// Flattened, as Megatron-Core up to 0.15 keeps it: ranks store ranges of layers' blocks.
TEST_F(SaveAndLoadTest, KeepsTheOptimizerInAnOlderFormOnEveryMesh) {
  const layout::Configuration settings =
      With(With(TinySettings(), kExperts),
           {{"save_format", "torch_dist"}, {"optimizer_form", "fully_sharded_model_space"}});
  std::int64_t iteration = 0;
  for (const Mesh& mesh : Meshes()) {
    SCOPED_TRACE(mesh.name);
    ++iteration;
    const auto state = static_cast<std::uint64_t>(iteration);
    ASSERT_THAT(Save(With(settings, mesh.settings), mesh.ranks, state, iteration), IsOk());
    const std::set<std::string> keys = KeysOf(*storage_, iteration);
    EXPECT_TRUE(AnyContains(keys, "optimizer.state.fp32_param."));
    EXPECT_FALSE(AnyContains(keys, "optimizer.state.param."));
    EXPECT_THAT(Load({{"global_batch_size", 3}}, 3, state, iteration), IsOk());
  }
}

TEST_F(SaveAndLoadTest, NamesParametersAsAskedAndGoesOnWithTheNamesItFound) {
  const layout::Configuration settings = With(TinySettings(), kExperts);
  std::int64_t iteration = 0;
  std::set<std::set<std::string>> distinct;
  for (const char* impl : {"local", "transformer_engine"}) {
    for (const char* experts : {"sequential", "grouped"}) {
      SCOPED_TRACE(::testing::Message() << impl << ", " << experts);
      ++iteration;
      const auto state = static_cast<std::uint64_t>(iteration);
      ASSERT_THAT(Save(With(settings, {{"transformer_impl", impl}, {"expert_names", experts}}), 2,
                       state, iteration),
                  IsOk());
      const std::set<std::string> keys = KeysOf(*storage_, iteration);
      distinct.insert(keys);
      const bool is_local = std::string_view(impl) == "local";
      EXPECT_EQ(AnyContains(keys, "layers.0.input_layernorm.weight"), is_local);
      EXPECT_EQ(AnyContains(keys, "layers.0.self_attention.linear_qkv.layer_norm_weight"),
                !is_local);
      EXPECT_EQ(AnyContains(keys, "local_experts.1.linear_fc2.weight"),
                std::string_view(experts) == "sequential");
      EXPECT_THAT(Load({{"global_batch_size", 4}}, 4, state, iteration), IsOk());
      // A run that goes on without saying how.
      auto sessions = SmallSessions::Create(
          *storage_, {{"load", kSaveRoot.string()}, {"save", kSaveRoot.string()}}, 1);
      ASSERT_THAT(sessions, IsOk());
      ++iteration;
      EXPECT_THAT(sessions->Run([&](RankSession& session, HostGroup&) -> Status {
        CKPT_RETURN_IF_ERROR(session.Start().status());
        return SaveState(session, state + 1, iteration);
      }),
                  IsOk());
      EXPECT_EQ(KeysOf(*storage_, iteration), keys);
    }
  }
  EXPECT_EQ(distinct.size(), 4U);
}

TEST_F(SaveAndLoadTest, AsHfIsARepositoryWithTheSameWeights) {
  ASSERT_THAT(testing::WriteSmallModel(*storage_, "/hf", {.hidden = 16}), IsOk());
  for (const bool is_async : {false, true}) {
    auto sessions = SmallSessions::Create(*storage_,
                                          {{"init", "hf:/hf"},
                                           {"seq_length", 4},
                                           {"train_iters", 3},
                                           {"save", kSaveRoot.string()},
                                           {"save_format", "hf"}},
                                          2);
    ASSERT_THAT(sessions, IsOk());
    sessions->set_async_save(is_async);
    const std::int64_t iteration = is_async ? 2 : 1;
    ASSERT_THAT(sessions->Run([&](RankSession& session, HostGroup&) -> Status {
      CKPT_RETURN_IF_ERROR(session.Start().status());
      CKPT_RETURN_IF_ERROR(SaveState(session, 9, iteration));
      return session.checkpoints().Finish();
    }),
                IsOk());
    const Path saved = kSaveRoot / ("iter_000000" + std::to_string(iteration));
    const auto model = OpenModel(*storage_, saved, {});
    ASSERT_THAT(model, IsOk());
    EXPECT_EQ(model->checkpoint->format->name, "hf");
    auto reader = WeightReader::Open(*model, "trainer", {}, kMiB);
    ASSERT_THAT(reader, IsOk());
    int compared = 0;
    for (const TargetTensor& tensor : reader->view().tensors) {
      const Pattern pattern(9, trainer::kWeightsPart, tensor.key);
      std::vector<float> values(static_cast<std::size_t>(NumElements(tensor.shape)));
      ASSERT_THAT(reader->ReadRows(tensor.key, 0, tensor.shape.front(), values), IsOk());
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], pattern.At(static_cast<std::int64_t>(i))) << tensor.key;
      }
      ++compared;
    }
    EXPECT_GE(compared, 8);
  }
  const auto entries = storage_->List(kSaveRoot);
  ASSERT_THAT(entries, IsOk());
  EXPECT_EQ(entries->size(), 3U);  // two repositories and the tracker
}

TEST_F(SaveAndLoadTest, AsHfWithoutAConfigurationOfTheModelSaysWhatIsMissing) {
  EXPECT_THAT(Save(With(TinySettings(), {{"save_format", "hf"}}), 2, 1, 1).ToString(),
              HasSubstr("config.json"));
}

TEST_F(SaveAndLoadTest, ForAnotherOptimizerIsRefusedUnlessOnlyWeightsAreTaken) {
  ASSERT_THAT(Save(TinySettings(), 2, 1, 1), IsOk());
  EXPECT_THAT(Load({{"optimizer", "sgd"}}, 2, 1, 1), FailsWith(ErrorKind::kUnsupported));
  auto sessions = SmallSessions::Create(
      *storage_,
      {{"load", kSaveRoot.string()}, {"optimizer", "sgd"}, {"finetune", true}, {"seq_length", 4}},
      2);
  ASSERT_THAT(sessions, IsOk());
  EXPECT_THAT(sessions->Run([&](RankSession& session, HostGroup&) -> Status {
    CKPT_ASSIGN_OR_RETURN(const RunProgress progress, session.Start());
    EXPECT_EQ(progress.iteration, 0);
    EXPECT_EQ(session.trainer().optimizer().steps(), 0);
    return OkStatus();
  }),
              IsOk());
}

TEST_F(SaveAndLoadTest, WithoutMomentsTheNumberOfUpdatesIsLoaded) {
  ASSERT_THAT(Save(TinySettings(), 1, 3, 3), IsOk());
  OpenModelOptions padded;
  padded.with_vocabulary_padding = true;
  auto state = OpenTrainingState(*storage_, kSaveRoot / megatron::IterationName(3), padded);
  ASSERT_THAT(state, IsOk());
  state->moments.clear();
  auto sessions = SmallSessions::Create(*storage_, TinySettings(), 1);
  ASSERT_THAT(sessions, IsOk());
  EXPECT_THAT(sessions->Run([&](RankSession& session, HostGroup&) -> Status {
    CKPT_RETURN_IF_ERROR(LoadState(*state, session.trainer(), /*progress=*/nullptr));
    EXPECT_EQ(session.trainer().optimizer().steps(), 3);
    return OkStatus();
  }),
              IsOk());
}

// ckpt-convert has options for it, and a run that saves has not.
TEST_F(SaveAndLoadTest, LayersOfWhichSomeAreFrozenAreToldTheFormatThatHoldsThem) {
  auto sessions = SmallSessions::Create(*storage_,
                                        With(TinySettings(), {{"num_layers", 2},
                                                              {"frozen", "decoder.layers.0.*"},
                                                              {"save", kSaveRoot.string()},
                                                              {"save_format", "torch_dist"}}),
                                        1);
  ASSERT_THAT(sessions, IsOk());
  const Status refused =
      sessions->Run([](RankSession& session, HostGroup&) { return SaveState(session, 1, 1); });
  ASSERT_THAT(refused, FailsWith(ErrorKind::kMissing));
  EXPECT_EQ(refused.first().hint,
            "set save_format=fsdp_dtensor, which stores what is frozen by itself");
}

}  // namespace
}  // namespace ckpt::train
