#include "converters/verbs/training_state.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>

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
  ChangedSource(std::unique_ptr<CheckpointSource> source,
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
  std::unique_ptr<CheckpointSource> source_;
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

TEST(TrainingState, KnowsHowFarTheRunHadCome) {
  const auto state = OpenTrainingState(PosixStorage(), DenseCheckpoint(), {});
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(state->iteration, 3);
  EXPECT_EQ(state->finished_updates, 3);
  EXPECT_EQ(state->consumed_samples, 24);
  EXPECT_EQ(state->moments.size(), 2U);
  EXPECT_EQ(state->args.at("global_batch_size"), layout::Value(8));
  EXPECT_EQ(state->args.at("params_dtype"), layout::Value("bfloat16"));
}

TEST(TrainingState, NeedsAnOptimizer) {
  const auto state =
      OpenTrainingState(PosixStorage(), GoldenDir() / "hf" / "llama-untied-bf16" / "ckpt", {});
  ASSERT_THAT(state, FailsWith(ErrorKind::kMissing));
  EXPECT_THAT(state.status().first().message, ::testing::HasSubstr("how often"));
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
