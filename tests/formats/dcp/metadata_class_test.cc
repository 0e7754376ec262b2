#include <gtest/gtest.h>

#include "formats/dcp/internal/metadata_reducer.h"

namespace ckpt::dcp {
namespace {

TEST(MetadataClassTest, KnowsEveryNameThatAClassEverHad) {
  using enum MetadataClass;
  const std::string kNow = "torch.distributed.checkpoint.";
  const std::string kOld = "torch.distributed._shard.checkpoint.";
  const std::string kSharded = "torch.distributed._shard.sharded_tensor.metadata";
  const std::string kMegatron = "megatron.core.dist_checkpointing.strategies.torch";
  struct Case {
    std::string module;
    std::string name;
    MetadataClass expected;
  };
  const std::vector<Case> cases = {
      {"torch", "Size", kSize},
      {"torch", "Tensor", kOther},
      {"torchvision", "Size", kOther},
      {kNow + "metadata", "Metadata", kMetadata},
      {kNow + "metadata", "TensorStorageMetadata", kTensor},
      {kNow + "metadata", "BytesStorageMetadata", kBytes},
      {kNow + "metadata", "TensorProperties", kProperties},
      {kNow + "metadata", "ChunkStorageMetadata", kChunk},
      {kNow + "metadata", "MetadataIndex", kIndex},
      {kNow + "metadata", "StorageMeta", kOther},
      {kOld + "metadata", "Metadata", kMetadata},
      {kOld + "filesystem", "_StorageInfo", kStored},
      {kNow + "filesystem", "_StorageInfo", kStored},
      {kNow + "filesystem", "_StoragePrefix", kPlan},
      {kNow + "filesystem", "Metadata", kOther},
      {kNow + "planner", "SavePlan", kPlan},
      {kNow + "planner", "WriteItem", kPlan},
      {kNow + "planner", "TensorWriteData", kPlan},
      {kNow + "planner", "BytesIOWriteData", kPlan},
      {kNow + "planner", "LoadPlan", kOther},
      {kNow + "state_dict", "Metadata", kOther},
      {kSharded, "TensorProperties", kProperties},
      {kSharded, "ShardedTensorMetadata", kOther},
      {kMegatron, "MCoreMetadata", kMetadata},
      {kMegatron, "MCoreSavePlan", kPlan},
      {kMegatron, "Metadata", kOther},
      {"posix", "Metadata", kOther},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(ClassifyMetadata(c.module, c.name), c.expected) << c.module << "." << c.name;
  }
}

}  // namespace
}  // namespace ckpt::dcp
