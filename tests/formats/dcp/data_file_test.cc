#include "formats/dcp/internal/data_file.h"

#include <memory>
#include <string_view>

#include <gtest/gtest.h>

#include "core/base/bytes.h"
#include "core/io/memory_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt::dcp {
namespace {

using testing::FailsWith;
using testing::IsOk;

class DataFileTest : public ::testing::Test {
 protected:
  DataFileTest() {
    EXPECT_THAT(storage_->MakeDirectories("/ck"), IsOk());
    EXPECT_THAT(WriteSmallFile(*storage_, "/ck/a", AsBytes(std::string_view("a"))), IsOk());
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(DataFileTest, NamesOutsideTheFolderAreNotOpened) {
  EXPECT_THAT(OpenDataFile(*storage_, "/ck", "a"), IsOk());
  EXPECT_THAT(OpenDataFile(*storage_, "/ck", "../ck/a"), FailsWith(ErrorKind::kUnsafePath));
}

TEST_F(DataFileTest, AMissingFileIsNamed) {
  const auto file = OpenDataFile(*storage_, "/ck", "d");
  ASSERT_THAT(file, FailsWith(ErrorKind::kMissingFile));
  EXPECT_EQ(file.status().first().file, "/ck/d");
}

TEST_F(DataFileTest, OtherErrorsStayWhatTheyAre) {
  ASSERT_THAT(storage_->MakeDirectories("/ck/folder"), IsOk());
  EXPECT_THAT(OpenDataFile(*storage_, "/ck", "folder"), FailsWith(ErrorKind::kIo));
}

}  // namespace
}  // namespace ckpt::dcp
