#include "converters/verbs/training_state.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "converters/config/run_args.h"
#include "converters/config/run_settings.h"
#include "core/io/posix_storage.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::GoldenDir;
using testing::IsOk;

constexpr const char* kStep =
    "optimizer.param_to_group_meta.module.module.module.decoder.final_layernorm.weight.step";

// The same index less one tensor.
CheckpointIndex Without(const CheckpointIndex& index, const std::string& key) {
  IndexBuilder builder;
  for (const std::string& file : index.files()) builder.AddFile(file);
  for (const std::string& encoding : index.encodings()) builder.AddEncoding(encoding);
  for (const GlobalTensor& tensor : index.tensors()) {
    if (tensor.key == key) continue;
    builder.AddTensor(tensor.key, tensor.dtype, tensor.shape);
    for (const Chunk& chunk : index.chunks(tensor)) {
      builder.AddChunk(index.box(chunk), chunk.file, chunk.encoding, chunk.offset_bytes,
                       chunk.size_bytes);
    }
  }
  for (const ObjectEntry& object : index.objects()) builder.AddObject(object);
  return builder.Build().value();
}

// A checkpoint that lacks a tensor, or has other values for some of its objects.
class ChangedSource final : public CheckpointSource {
 public:
  ChangedSource(std::shared_ptr<const CheckpointSource> source,
                std::map<std::string, std::string> changed, const std::string& absent)
      : source_(std::move(source)),
        changed_(std::move(changed)),
        index_(Without(source_->index(), absent)) {}

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }
  [[nodiscard]] Result<StoredArray> Locate(const GlobalTensor& tensor,
                                           const Chunk& chunk) const override {
    return source_->Locate(tensor, chunk);
  }
  [[nodiscard]] Result<RenderedObject> ReadObject(const ObjectEntry& object) const override {
    const auto changed = changed_.find(object.key);
    if (changed == changed_.end()) return source_->ReadObject(object);
    return RenderedObject{.type = "int", .json = changed->second, .warnings = {}};
  }
  [[nodiscard]] Result<std::uint64_t> FileSize(FileId file) const override {
    return source_->FileSize(file);
  }
  [[nodiscard]] Protection protection() const override { return source_->protection(); }

 private:
  std::shared_ptr<const CheckpointSource> source_;
  std::map<std::string, std::string> changed_;
  CheckpointIndex index_;
};

Path DenseCheckpoint() { return GoldenDir() / "fsdp_dtensor" / "dense_fsdp2" / "ckpt"; }

Result<TrainingState> OpenChanged(const std::map<std::string, std::string>& changed,
                                  const std::string& absent = {}) {
  CKPT_ASSIGN_OR_RETURN(OpenedCheckpoint opened, OpenCheckpoint(PosixStorage(), DenseCheckpoint()));
  opened.source = std::make_unique<ChangedSource>(std::move(opened.source), changed, absent);
  return UnderstandTrainingState(PosixStorage(),
                                 std::make_shared<const OpenedCheckpoint>(std::move(opened)), {});
}

// The run's arguments and more of them.
Result<TrainingState> OpenWithArgs(const std::string& more) {
  CKPT_ASSIGN_OR_RETURN(const OpenedCheckpoint opened,
                        OpenCheckpoint(PosixStorage(), DenseCheckpoint()));
  CKPT_ASSIGN_OR_RETURN(RenderedObject args,
                        opened.source->ReadObject(*opened.source->index().FindObject("args")));
  args.json.insert(args.json.find("\"iteration\""), more + ", ");
  return OpenChanged({{"args", args.json}});
}

// Where both have an argument, they say the same, but of what a run decides anew.
void ExpectMegatronsWords(const layout::Configuration& ours, const layout::Configuration& theirs) {
  const std::set<std::string> anew = {
      "data_parallel_sharding_strategy",
      "expert_model_parallel_size",
      "main_grads_dtype",  // a torch.dtype
      "moe_token_dispatcher_type",
      "num_distributed_optimizer_instances",
      "outer_dp_sharding_strategy",
      "overlap_grad_reduce",
      "overlap_param_gather",
      "tensor_model_parallel_size",
      "train_iters",
      "use_rotary_position_embeddings",  // the older word for a position_embedding_type
  };
  for (const auto& [name, value] : ours) {
    const auto found = theirs.find(name);
    if (found == theirs.end() || anew.contains(name)) continue;
    EXPECT_EQ(layout::FormatValue(value), layout::FormatValue(found->second)) << name;
  }
}

TEST(TrainingState, KnowsHowFarTheRunHadCome) {
  const auto state = OpenTrainingState(PosixStorage(), DenseCheckpoint(), {});
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(state->run.iteration, 3);
  EXPECT_EQ(state->run.finished_updates(), 3);
  EXPECT_EQ(state->run.consumed_samples, 24);
  EXPECT_EQ(state->moments.size(), 2U);
  EXPECT_EQ(state->args.at("global_batch_size"), layout::Value(8));
  EXPECT_EQ(state->args.at("params_dtype"), layout::Value("bfloat16"));
}

TEST(TrainingState, KnowsWhatARunOfOursNoted) {
  const auto theirs = OpenTrainingState(PosixStorage(), DenseCheckpoint(), {});
  ASSERT_THAT(theirs, IsOk());
  EXPECT_EQ(theirs->run.seed, 1234U);
  EXPECT_EQ(theirs->facts.state_digest, std::nullopt);
  EXPECT_EQ(theirs->facts.next_loss, std::nullopt);

  const auto ours = OpenWithArgs(R"("ckptkit_state_digest": "abc", "ckptkit_next_loss": 2.5)");
  ASSERT_THAT(ours, IsOk());
  EXPECT_EQ(ours->facts.state_digest, "abc");
  EXPECT_EQ(ours->facts.next_loss, 2.5);

  EXPECT_EQ(theirs->facts.data_identity, std::nullopt);
  EXPECT_EQ(OpenWithArgs(R"("ckptkit_data_identity": "8 documents")")->facts.data_identity,
            "8 documents");

  EXPECT_THAT(OpenWithArgs(R"("ckptkit_next_loss": "low")"), FailsWith(ErrorKind::kBadMetadata));
}

TEST(TrainingState, ACountThatIsNoIntegerIsNotMissing) {
  const auto opened = OpenCheckpoint(PosixStorage(), DenseCheckpoint());
  ASSERT_THAT(opened, IsOk());
  auto args = opened->source->ReadObject(*opened->source->index().FindObject("args"));
  ASSERT_THAT(args, IsOk());
  const std::size_t name = args->json.find("\"consumed_train_samples\"");
  ASSERT_NE(name, std::string::npos);
  args->json.insert(args->json.find_first_of(",}", name), ".5");
  const auto state = OpenChanged({{"args", args->json}});
  ASSERT_THAT(state, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_EQ(state.status().first().message, "argument consumed_train_samples is of the wrong kind");
  EXPECT_EQ(state.status().first().actual, "24.5");
}

// What Megatron stored becomes settings, and those become what a run of ours stores.
TEST(TrainingState, HasSettingsThatSurviveARunOfOurs) {
  std::size_t cases = 0;
  for (const std::string& name : testing::GoldenCases("fsdp_dtensor")) {
    if (name.starts_with("fully_shard")) continue;
    SCOPED_TRACE(name);
    const auto state =
        OpenTrainingState(PosixStorage(), GoldenDir() / "fsdp_dtensor" / name / "ckpt", {});
    ASSERT_THAT(state, IsOk());
    const auto settings = RunSettings(state->args);
    ASSERT_THAT(settings, IsOk());
    const auto args = RunArgs(*settings, {.iteration = 3, .consumed_train_samples = 24});
    ASSERT_THAT(args, IsOk());
    const layout::Configuration stored(args->begin(), args->end());
    EXPECT_EQ(RunSettings(stored).value(), *settings);
    ExpectMegatronsWords(stored, state->args);
    ++cases;
  }
  EXPECT_GT(cases, 0U);
}

TEST(TrainingState, NeedsAnOptimizer) {
  const auto state =
      OpenTrainingState(PosixStorage(), GoldenDir() / "hf" / "llama-untied-bf16" / "ckpt", {});
  ASSERT_THAT(state, FailsWith(ErrorKind::kMissing));
  EXPECT_THAT(state.status().first().message, ::testing::HasSubstr("no training run"));
}

TEST(TrainingState, NeedsBothMomentsOfEveryTrainedWeight) {
  const std::string moment =
      "optimizer.state.module.module.module.decoder.layers.1.mlp.linear_fc1.weight_v.exp_avg_sq";
  const auto state = OpenChanged({}, moment);
  ASSERT_THAT(state, FailsWith(ErrorKind::kMissing));
  EXPECT_THAT(state.status().first().tensor,
              ::testing::EndsWith("decoder.layers.1.mlp.linear_fc1.weight.exp_avg_sq"));
}

TEST(TrainingState, NeedsOneCountOfUpdates) {
  const auto uneven = OpenChanged({{kStep, "2"}});
  EXPECT_THAT(uneven, FailsWith(ErrorKind::kUnsupported));
  const auto no_number = OpenChanged({{kStep, "\"three\""}});
  EXPECT_FALSE(no_number.ok());
}

TEST(TrainingState, RefusesALearningRateThatStandsElsewhere) {
  for (const char* samples : {"16", "25"}) {
    const auto state = OpenChanged({{"opt_param_scheduler.num_steps", samples}});
    ASSERT_THAT(state, FailsWith(ErrorKind::kUnsupported));
    EXPECT_EQ(state.status().first().tensor, "opt_param_scheduler.num_steps");
  }
}

}  // namespace
}  // namespace ckpt
