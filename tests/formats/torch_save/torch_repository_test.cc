// Which files of a repository are read, and what is said of those that are not there.
#include "formats/torch_save/torch_repository.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "formats/registry/registry.h"
#include "formats/torch_save/torch_item.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_save {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::IsEmpty;
using testing::IsOk;

MATCHER_P3(IsProblem, kind, tensor, file, "") {
  return arg.kind == kind && arg.tensor == tensor && arg.file == file;
}

// A file with the tensor of eight bytes at its root.
Bytes File() {
  const TensorItem item(DType::kUint8, Dims{8});
  Bytes bytes = item.head();
  const Bytes payload(8, std::byte{0});
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  // CRC-32 of eight zero bytes.
  const Bytes tail = item.Tail(0x6522DF69);
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  return bytes;
}

class TorchRepositoryTest : public ::testing::Test {
 protected:
  TorchRepositoryTest() : storage_(MakeMemoryStorage()) {
    EXPECT_THAT(storage_->MakeDirectories("/r"), IsOk());
  }
  void Add(const std::string& name, ByteSpan content) {
    EXPECT_THAT(WriteSmallFile(*storage_, Path("/r") / name, content), IsOk());
  }
  void AddIndex(std::string_view weight_map) {
    Add(std::string(kTorchIndexName),
        AsBytes(std::string(R"({"weight_map":)") + std::string(weight_map) + "}"));
  }
  Result<OpenedCheckpoint> Open() { return OpenCheckpoint(*storage_, "/r"); }

  std::unique_ptr<Storage> storage_;
};

TEST_F(TorchRepositoryTest, IsAModelWithAConfigurationAndFilesWithout) {
  Add("pytorch_model.bin", File());
  Add("training_args.bin", AsBytes("?"));
  Result<OpenedCheckpoint> opened = Open();
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ(opened->format->name, "torch_save");
  EXPECT_EQ(opened->path, Path("/r/pytorch_model.bin"));
  Add("config.json", AsBytes("{}"));
  opened = Open();
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ(opened->format->name, "hf");
  EXPECT_EQ(opened->path, Path("/r"));
  EXPECT_THAT(opened->source->index().files(), ElementsAre("pytorch_model.bin"));
}

TEST_F(TorchRepositoryTest, IsAnAdapterWithItsConfiguration) {
  Add("adapter_model.bin", File());
  Add("training_args.bin", AsBytes("?"));
  Result<OpenedCheckpoint> opened = Open();
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ(opened->path, Path("/r/adapter_model.bin"));
  Add("adapter_config.json", AsBytes("{}"));
  opened = Open();
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ(opened->path, Path("/r"));
  EXPECT_THAT(opened->source->index().files(), ElementsAre("adapter_model.bin"));
  ASSERT_TRUE(opened->format->keeps_shards());
  const std::vector<ManifestShard> shards = opened->format->describe_shards(*opened->source);
  ASSERT_EQ(shards.size(), 1U);
  EXPECT_EQ(shards[0].file, "adapter_model.safetensors");
  EXPECT_THAT(shards[0].tensors, ElementsAre(""));
}

TEST_F(TorchRepositoryTest, TakesTheSingleFileBeforeAnIndex) {
  Add("pytorch_model.bin", File());
  AddIndex(R"({"a":"gone.bin"})");
  const Result<OpenedCheckpoint> opened = Open();
  ASSERT_THAT(opened, IsOk());
  EXPECT_THAT(opened->source->index().problems(), IsEmpty());
}

TEST_F(TorchRepositoryTest, ReadsEachFileOfTheIndexAndNamesWhatIsNotThere) {
  Add("a.bin", File());
  AddIndex(R"({"":"a.bin","b":"a.bin","c":"gone.bin"})");
  const Result<OpenedCheckpoint> opened = Open();
  ASSERT_THAT(opened, IsOk());
  const CheckpointSource& source = *opened->source;
  ASSERT_EQ(source.index().tensors().size(), 1U);
  const GlobalTensor& tensor = source.index().tensors().front();
  EXPECT_THAT(source.Locate(tensor, source.index().chunks(tensor).front()), IsOk());
  EXPECT_THAT(source.VerifyRest(), IsOk());
  EXPECT_EQ(source.protection(), Protection::kCrc32);
  EXPECT_THAT(source.index().problems(),
              ElementsAre(IsProblem(ErrorKind::kMissing, "b", "a.bin"),
                          IsProblem(ErrorKind::kMissingFile, "c", "gone.bin")));
}

// Of a repository of which one file is left, that file is not the whole.
TEST_F(TorchRepositoryTest, IsNoOneObject) {
  Add("a.bin", File());
  AddIndex(R"({"":"a.bin","c":"gone.bin"})");
  const Result<OpenedCheckpoint> opened = OpenCheckpoint(*storage_, "/r", {.format = "torch_save"});
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ(opened->source->index().files().size(), 1U);
  EXPECT_FALSE(opened->source->is_one_object());
  const Result<OpenedCheckpoint> file = OpenCheckpoint(*storage_, "/r/a.bin");
  ASSERT_THAT(file, IsOk());
  EXPECT_TRUE(file->source->is_one_object());
}

TEST_F(TorchRepositoryTest, ATensorIsOfTheFileThatTheIndexGivesItTo) {
  Add("a.bin", File());
  Add("b.bin", File());
  AddIndex(R"({"":"b.bin","x":"a.bin"})");
  const Result<OpenedCheckpoint> opened = Open();
  ASSERT_THAT(opened, IsOk());
  const CheckpointIndex& index = opened->source->index();
  ASSERT_EQ(index.tensors().size(), 1U);
  EXPECT_EQ(index.files()[index.chunks(index.tensors().front()).front().file], "b.bin");
}

TEST_F(TorchRepositoryTest, ShardsWithoutAnIndexAndDamagedOnesAreRefused) {
  Add("pytorch_model-00001-of-00002.bin", File());
  EXPECT_THAT(Open(), FailsWith(ErrorKind::kIncomplete));
  AddIndex(R"({"a":"pytorch_model-00001-of-00002.bin","b":"short.bin"})");
  EXPECT_THAT(Open(), IsOk());
  Add("short.bin", AsBytes("PK\x03\x04"));
  EXPECT_THAT(Open(), FailsWith(ErrorKind::kTruncated));
}

}  // namespace
}  // namespace ckpt::torch_save
