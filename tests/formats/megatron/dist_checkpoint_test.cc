#include "formats/megatron/dist_checkpoint.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/memory_storage.h"
#include "formats/place.h"
#include "tests/testing/matchers.h"

namespace ckpt::megatron {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;

class DistCheckpointTest : public ::testing::Test {
 protected:
  DistCheckpointTest() { EXPECT_THAT(storage_->MakeDirectories("/c"), IsOk()); }

  void Say(std::string_view metadata) {
    ASSERT_THAT(storage_->RemoveAll("/c/metadata.json"), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, "/c/metadata.json", AsBytes(metadata)), IsOk());
  }
  Result<std::optional<std::string>> Recognised() {
    const auto place = LookAtDirectory(*storage_, "/c");
    EXPECT_THAT(place, IsOk());
    return ShardedBackend(*place);
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(DistCheckpointTest, TellsTheBackend) {
  EXPECT_THAT(Recognised(), IsOkAndHolds(std::nullopt));
  Say(R"({"format": "pt"})");
  EXPECT_THAT(Recognised(), IsOkAndHolds(std::nullopt));
  for (const std::string name : {"torch_dist", "zarr"}) {
    for (const char* version : {"", R"(, "sharded_backend_version": 1)"}) {
      Say(R"({"sharded_backend": ")" + name + "\"" + version + "}");
      EXPECT_THAT(Recognised(), IsOkAndHolds(std::optional(name)));
      EXPECT_THAT(CheckShardedBackend(*storage_, "/c", name), IsOk());
      EXPECT_THAT(CheckShardedBackend(*storage_, "/c", "other"),
                  FailsWith(ErrorKind::kUnsupported));
    }
  }
}

TEST_F(DistCheckpointTest, OtherVersionsAreRefused) {
  struct Case {
    const char* version;
    ErrorKind kind;
    const char* part;
  };
  const char* const numbers = "expected sharded_backend_version 1, found ";
  for (const Case& c :
       {Case{"2", ErrorKind::kUnsupported, numbers}, Case{"0", ErrorKind::kUnsupported, numbers},
        Case{"-1", ErrorKind::kUnsupported, numbers},
        Case{"1.5", ErrorKind::kBadMetadata, "sharded_backend_version"},
        Case{"\"1\"", ErrorKind::kBadMetadata, "sharded_backend_version"},
        Case{"null", ErrorKind::kBadMetadata, "sharded_backend_version"},
        Case{"18446744073709551616", ErrorKind::kBadMetadata, ""}}) {
    SCOPED_TRACE(c.version);
    Say(R"({"sharded_backend": "torch_dist", "sharded_backend_version": )" +
        std::string(c.version) + "}");
    for (const Status& refused :
         {Recognised().status(), CheckShardedBackend(*storage_, "/c", "torch_dist")}) {
      ASSERT_THAT(refused, FailsWith(c.kind));
      EXPECT_THAT(refused.ToString(), HasSubstr("metadata.json"));
      EXPECT_THAT(refused.ToString(), HasSubstr(c.part));
    }
  }
}

// The version is that of the backend, whatever else another program calls so.
TEST_F(DistCheckpointTest, AVersionAloneSaysNothing) {
  Say(R"({"sharded_backend_version": 2})");
  EXPECT_THAT(Recognised(), IsOkAndHolds(std::nullopt));
  EXPECT_THAT(CheckShardedBackend(*storage_, "/c", "torch_dist"),
              FailsWith(ErrorKind::kBadMetadata));
}

TEST_F(DistCheckpointTest, SaysWhetherTheCommonStateIsAFile) {
  Say(R"({"sharded_backend": "torch_dist", "common_backend": "torch"})");
  EXPECT_THAT(SaysCommonFile(*storage_, "/c"), IsOkAndHolds(true));
  Say(R"({"sharded_backend": "torch_dist", "common_backend": null})");
  EXPECT_THAT(SaysCommonFile(*storage_, "/c"), IsOkAndHolds(false));
  Say(R"({"sharded_backend": "torch_dist"})");
  EXPECT_THAT(SaysCommonFile(*storage_, "/c"), IsOkAndHolds(false));
}

}  // namespace
}  // namespace ckpt::megatron
