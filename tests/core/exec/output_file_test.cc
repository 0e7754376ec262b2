#include "core/exec/internal/output_file.h"

#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/io/memory_storage.h"
#include "tests/testing/fault_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FaultStorage;
using testing::IsOk;
using testing::IsOkAndHolds;

// Of a file of one block.
BlockChecksums ChecksumsOf(std::string_view content) {
  return {.crc32c = {Crc32c(AsBytes(content))}, .crc32 = {Crc32(AsBytes(content))}};
}

class OutputFileTest : public ::testing::Test {
 protected:
  OutputFileTest() : memory_(MakeMemoryStorage()), storage_(*memory_, -1) {
    EXPECT_THAT(WriteSmallFile(*memory_, "/f", AsBytes("....")), IsOk());
  }
  std::string Content() { return ReadSmallFile(*memory_, "/f", 100).value(); }

  std::unique_ptr<Storage> memory_;
  FaultStorage storage_;
};

TEST_F(OutputFileTest, IsOpenFromItsFirstPartToItsLast) {
  const WriteLiteral literal = {.file = 0, .offset_bytes = 0, .bytes = {std::byte{'L'}}};
  OutputFile file(storage_, "/f", 4);
  file.AddLiteral(literal);
  file.AddPart();
  file.AddPart();
  EXPECT_EQ(storage_.calls(), 0);
  for (const std::uint64_t offset : {1U, 2U}) {
    const auto out = file.Open();
    ASSERT_THAT(out, IsOk());
    ASSERT_THAT((*out)->WriteAt(offset, AsBytes("x")), IsOk());
    file.AddPieces({{.offset_bytes = offset,
                     .length_bytes = 1,
                     .crc32c = Crc32c(AsBytes("x")),
                     .crc32 = Crc32(AsBytes("x"))}});
    ASSERT_THAT(file.PartDone(), IsOk());
  }
  const int calls = storage_.calls();
  EXPECT_EQ(calls, 6);                     // open, the literal, two parts, sync, close
  const std::string expected("Lxx\0", 4);  // a gap counts as zero
  EXPECT_THAT(file.Finish(), IsOkAndHolds(ChecksumsOf(expected)));
  EXPECT_EQ(storage_.calls(), calls);
  EXPECT_EQ(Content(), "Lxx.");
}

TEST_F(OutputFileTest, ASizeThatShowsLateCutsOffWhatAnInterruptedRunLeft) {
  OutputFile file(storage_, "/f", 0);
  file.AddPart();
  const auto out = file.Open();
  ASSERT_THAT(out, IsOk());
  ASSERT_THAT((*out)->WriteAt(0, AsBytes("xy")), IsOk());
  file.AddPieces({{.offset_bytes = 0,
                   .length_bytes = 2,
                   .crc32c = Crc32c(AsBytes("xy")),
                   .crc32 = Crc32(AsBytes("xy"))}});
  file.SetSize(2);
  ASSERT_THAT(file.PartDone(), IsOk());
  EXPECT_THAT(file.Finish(), IsOkAndHolds(ChecksumsOf("xy")));
  EXPECT_EQ(Content(), "xy");
}

TEST_F(OutputFileTest, WithoutPartsIsWrittenAtTheEnd) {
  const WriteLiteral literal = {.file = 0, .offset_bytes = 0, .bytes = Bytes(4, std::byte{'L'})};
  OutputFile file(storage_, "/f", 4);
  file.AddLiteral(literal);
  EXPECT_THAT(file.Finish(), IsOkAndHolds(ChecksumsOf("LLLL")));
  EXPECT_EQ(Content(), "LLLL");
  EXPECT_EQ(storage_.calls(), 4);  // open, write, sync, close
}

}  // namespace
}  // namespace ckpt
