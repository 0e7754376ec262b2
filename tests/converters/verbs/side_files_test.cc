#include "converters/verbs/side_files.h"

#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

TEST(SideFiles, EverythingButWeightsOurSidecarAndCaches) {
  const auto storage = MakeMemoryStorage();
  for (const std::string name :
       {"config.json", "tokenizer.model", "model.safetensors", "model.safetensors.index.json",
        "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json", "training_args.bin",
        "consolidated.00.pth", "ckptkit.json", ".gitattributes", ".git/config", ".cache/x",
        "original/params.json", "original/consolidated.00.pth", "modeling.py"}) {
    const Path path = Path("/repo") / name;
    ASSERT_THAT(storage->MakeDirectories(path.parent_path()), testing::IsOk());
    ASSERT_THAT(WriteSmallFile(*storage, path, AsBytes("x")), testing::IsOk());
  }
  const auto names = ListSideFiles(*storage, "/repo");
  ASSERT_THAT(names, testing::IsOk());
  EXPECT_THAT(*names, ::testing::UnorderedElementsAre(
                          "config.json", "tokenizer.model", "model.safetensors.index.json",
                          "pytorch_model.bin.index.json", "training_args.bin", ".gitattributes",
                          "original/params.json", "modeling.py"));
}

// The sidecar is JSON: it could not name such a file, and would call the copy damaged.
TEST(SideFiles, OfNamesThatAreNoUtf8AreRefused) {
  const auto storage = MakeMemoryStorage();
  ASSERT_THAT(storage->MakeDirectories("/repo"), testing::IsOk());
  ASSERT_THAT(WriteSmallFile(*storage, "/repo/a\xff.txt", AsBytes("x")), testing::IsOk());
  EXPECT_THAT(ListSideFiles(*storage, "/repo"), testing::FailsWith(ErrorKind::kUnsupported));
}

}  // namespace
}  // namespace ckpt
