#include "core/io/file_cache.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/forwarding_storage.h"
#include "core/io/memory_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using testing::IsOk;

// Tells who opens which file. Nobody does anything else with it.
class WatchedStorage final : public ForwardingStorage {
 public:
  WatchedStorage(Storage& behind, std::function<void(const std::string&)> on_open)
      : ForwardingStorage(behind), on_open_(std::move(on_open)) {}

  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    on_open_(path.filename().string());
    return behind().Open(path);
  }

 private:
  std::function<void(const std::string&)> on_open_;
};

class FileCacheTest : public ::testing::Test {
 protected:
  FileCacheTest() {
    EXPECT_THAT(storage_.MakeDirectories("/ck"), IsOk());
    for (const char* name : {"a", "b", "c"}) {
      EXPECT_THAT(WriteSmallFile(storage_, Path("/ck") / name, AsBytes(std::string_view(name))),
                  IsOk());
    }
  }

  std::shared_ptr<const ReadableFile> Get(const std::string& name) {
    auto file = cache_.Open(name);
    EXPECT_THAT(file, IsOk());
    return *file;
  }

  std::vector<std::string> opened_;
  std::function<void()> meanwhile_;
  std::unique_ptr<Storage> disk_ = MakeMemoryStorage();
  WatchedStorage storage_{*disk_, [this](const std::string& name) {
                            opened_.push_back(name);
                            if (const auto meanwhile = std::exchange(meanwhile_, nullptr))
                              meanwhile();
                          }};
  FileCache cache_{[this](const std::string& name) { return storage_.Open(Path("/ck") / name); },
                   2};
};

TEST_F(FileCacheTest, OpensAFileOnce) {
  EXPECT_EQ(Get("a"), Get("a"));
  EXPECT_THAT(opened_, ElementsAre("a"));
}

TEST_F(FileCacheTest, ForgetsTheFileThatWasUsedLeastRecently) {
  for (const char* name : {"a", "b", "a", "c", "a", "b"}) Get(name);
  EXPECT_THAT(opened_, ElementsAre("a", "b", "c", "b"));
}

TEST_F(FileCacheTest, AForgottenFileStaysOpenForItsHolder) {
  const auto held = Get("a");
  Get("b");
  Get("c");
  std::byte byte{};
  EXPECT_THAT(held->ReadAt(0, {&byte, 1}), IsOk());
  EXPECT_EQ(byte, std::byte{'a'});
}

TEST_F(FileCacheTest, WhoOpensTheSameFileMeanwhileSharesTheFirstOne) {
  std::shared_ptr<const ReadableFile> first;
  meanwhile_ = [&] { first = Get("a"); };
  EXPECT_EQ(Get("a"), first);
  EXPECT_EQ(Get("a"), first);
  EXPECT_THAT(opened_, ElementsAre("a", "a"));
}

TEST_F(FileCacheTest, ErrorsAreThoseOfWhoeverOpensAndAreNotKept) {
  EXPECT_THAT(cache_.Open("d"), FailsWith(ErrorKind::kNotFound));
  ASSERT_THAT(WriteSmallFile(storage_, "/ck/d", AsBytes(std::string_view("d"))), IsOk());
  Get("d");
  EXPECT_THAT(opened_, ElementsAre("d", "d"));
}

}  // namespace
}  // namespace ckpt
