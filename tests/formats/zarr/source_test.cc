// Folders of zarr arrays, whole and damaged.
#include "formats/zarr/internal/source.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/checkpoint/read.h"
#include "core/checkpoint/validate.h"
#include "core/io/memory_storage.h"
#include "formats/registry/registry.h"
#include "formats/torch_save/torch_item.h"
#include "tests/testing/matchers.h"

namespace ckpt::zarr {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ZarrTest : public ::testing::Test {
 protected:
  ZarrTest() { Write("metadata.json", R"({"sharded_backend": "zarr"})"); }

  void Write(const std::string& file, std::string_view content) {
    const Path path = Path("/c") / file;
    ASSERT_THAT(storage_->MakeDirectories(path.parent_path()), IsOk());
    ASSERT_THAT(storage_->RemoveAll(path), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, path, AsBytes(content)), IsOk());
  }
  // Bytes 0, 1, … of 3 x 3 elements in chunks of 2 x 2, whose rest is 0xff.
  void WriteArray(const std::string& key = "w") {
    Write(key + "/.zarray",
          R"({"zarr_format": 2, "shape": [3, 3], "chunks": [2, 2], "dtype": "|u1"})");
    Write(key + "/0.0", std::string_view("\0\1\3\4", 4));
    Write(key + "/0.1", "\2\xff\5\xff");
    Write(key + "/1.0", "\6\7\xff\xff");
    Write(key + "/1.1", "\x08\xff\xff\xff");
  }
  std::vector<Problem> Problems() {
    const auto source = OpenSource(*storage_, "/c");
    EXPECT_THAT(source, IsOk());
    return ValidateIndex(**source);
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(ZarrTest, PadsOfChunksAtTheEdgesAreNotRead) {
  WriteArray();
  const auto opened = OpenCheckpoint(*storage_, "/c");
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ(opened->format->name, "zarr");
  const CheckpointSource& source = *opened->source;
  EXPECT_THAT(ValidateIndex(source), IsEmpty());
  Bytes values(9);
  ASSERT_THAT(ReadBox(source, source.index().tensors()[0], {{0, 0}, {3, 3}}, values, 1 << 20),
              IsOk());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], std::byte(i));
}

TEST_F(ZarrTest, ObjectsAndTheCommonStateAreRead) {
  pickle::PickleWriter value(pickle::Dialect::kWeightsOnly);
  value.Int(7);
  const Bytes item = torch_save::ObjectItem(value.Take());
  Write("common.pt", AsText(item));
  Write("rng_state/shard_0.1_2.4.pt", AsText(item));
  const auto source = OpenSource(*storage_, "/c");
  ASSERT_THAT(source, IsOk());
  const auto objects = (*source)->index().objects();
  ASSERT_THAT(objects, SizeIs(2));
  EXPECT_EQ(objects[0].key, "common_state");
  EXPECT_EQ(objects[1].key, "rng_state/shard_0.1_2.4");
  for (const ObjectEntry& object : objects) {
    const auto read = (*source)->ReadObject(object);
    ASSERT_THAT(read, IsOk()) << object.key;
    EXPECT_EQ(read->json, "7");
  }
}

TEST_F(ZarrTest, ALostCommonStateIsNamed) {
  Write("metadata.json", R"({"sharded_backend": "zarr", "common_backend": "torch"})");
  WriteArray();
  const auto source = OpenSource(*storage_, "/c");
  ASSERT_THAT(source, IsOk());
  const ObjectEntry* const common = (*source)->index().FindObject("common_state");
  ASSERT_NE(common, nullptr);
  const auto read = (*source)->ReadObject(*common);
  ASSERT_THAT(read, FailsWith(ErrorKind::kMissingFile));
  EXPECT_EQ(read.status().first().file, "/c/common.pt");
  EXPECT_THAT((*source)->ReadPickled(*common), FailsWith(ErrorKind::kMissingFile));
  // Whoever asks for the file's size first says as much as who reads it.
  const auto size = (*source)->FileSize(common->file);
  ASSERT_THAT(size, FailsWith(ErrorKind::kMissingFile));
  EXPECT_EQ(size.status().first().file, "/c/common.pt");
  EXPECT_EQ(size.status().first().message, read.status().first().message);
  EXPECT_THAT(size.status().first().hint, HasSubstr("--drop common_state"));
}

TEST_F(ZarrTest, AMissingChunkIsNamedAndWhatItLeavesUncovered) {
  WriteArray();
  ASSERT_THAT(storage_->RemoveAll("/c/w/1.0"), IsOk());
  const auto problems = Problems();
  ASSERT_THAT(problems, SizeIs(2));
  EXPECT_EQ(problems[1].kind, ErrorKind::kCoverage);
  EXPECT_EQ(problems[0].kind, ErrorKind::kMissingFile);
  EXPECT_EQ(problems[0].tensor, "w");
  EXPECT_EQ(problems[0].file, "/c/w/1.0");
  EXPECT_EQ(problems[0].actual, "3 files");
}

TEST_F(ZarrTest, AChunkOfAnotherSizeIsAnError) {
  WriteArray();
  for (const char* content : {"abc", "abcde"}) {
    Write("w/0.0", content);
    const auto source = OpenSource(*storage_, "/c");
    ASSERT_THAT(source, IsOk());
    const GlobalTensor& tensor = (*source)->index().tensors()[0];
    EXPECT_THAT((*source)->Locate(tensor, (*source)->index().chunks(tensor)[0]),
                FailsWith(ErrorKind::kSizeMismatch));
  }
}

TEST_F(ZarrTest, ChunksWithoutADescriptionAreAnError) {
  WriteArray();
  ASSERT_THAT(storage_->RemoveAll("/c/w/.zarray"), IsOk());
  const auto problems = Problems();
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].kind, ErrorKind::kMissingFile);
  EXPECT_THAT(problems[0].file, HasSubstr("w/.zarray"));
}

TEST_F(ZarrTest, WhatIsNoChunkIsNamed) {
  WriteArray();
  Write("w/2.0", "abcd");
  Write("w/0.0.partial", "");
  Write("w.sync/0.0.lock", "");
  Write("tokenizer/vocab.txt", "");
  const auto problems = Problems();
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].kind, ErrorKind::kLeftover);
  EXPECT_EQ(problems[0].actual, "0.0.partial, 2.0");
}

TEST_F(ZarrTest, ABadArrayConcernsItsTensorAlone) {
  WriteArray("good");
  WriteArray("bad");
  Write("bad/.zarray", "{");
  const auto source = OpenSource(*storage_, "/c");
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT((*source)->index().tensors(), SizeIs(1));
  ASSERT_THAT((*source)->index().problems(), SizeIs(1));
  EXPECT_EQ((*source)->index().problems()[0].tensor, "bad");
}

TEST_F(ZarrTest, AnotherBackendIsRefused) {
  Write("metadata.json", R"({"sharded_backend": "torch_dist"})");
  EXPECT_THAT(OpenSource(*storage_, "/c"), FailsWith(ErrorKind::kUnsupported));
  Write("metadata.json", R"({"sharded_backend": "other"})");
  EXPECT_THAT(OpenCheckpoint(*storage_, "/c"), FailsWith(ErrorKind::kUnsupported));
}

}  // namespace
}  // namespace ckpt::zarr
