#include "core/io/range_crc.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

constexpr std::string_view kContent = "a range of a few bytes";

// Says whether its bytes are compared with checksums as they are read.
class SomeFile : public ReadableFile {
 public:
  explicit SomeFile(bool is_checked) : is_checked_(is_checked) {}
  std::uint64_t size_bytes() const override { return kContent.size(); }
  const std::string& name() const override { return name_; }
  bool is_checked() const override { return is_checked_; }
  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    ++reads_;
    const ByteSpan part = AsBytes(kContent).subspan(offset, out.size());
    std::copy(part.begin(), part.end(), out.begin());
    return OkStatus();
  }
  Result<std::unique_ptr<FileView>> View() const override {
    return Error(ErrorKind::kUnsupported, "no view");
  }
  int reads() const { return reads_; }

 private:
  const bool is_checked_;
  const std::string name_ = "file";
  mutable int reads_ = 0;
};

TEST(RangeCrcTest, ComparesTheBytesOfTheRange) {
  const SomeFile file(false);
  const std::uint32_t crc32 = Crc32(AsBytes(kContent.substr(2, 6)));
  EXPECT_THAT(VerifyRangeCrc32(file, "r", 2, 6, crc32), IsOk());
  EXPECT_THAT(VerifyRangeCrc32(file, "r", 2, 6, crc32 ^ 1), FailsWith(ErrorKind::kChecksum));
  EXPECT_THAT(VerifyRangeCrc32(file, "r", 3, 6, crc32), FailsWith(ErrorKind::kChecksum));
}

TEST(RangeCrcTest, ReadsNothingOfAFileWhoseBytesAreCheckedAnyway) {
  const SomeFile file(true);
  EXPECT_THAT(VerifyRangeCrc32(file, "r", 2, 6, 0), IsOk());
  EXPECT_EQ(file.reads(), 0);
}

// Reads [2, 8) of the file in these parts; the first failure ends it.
Status ReadParts(const std::shared_ptr<const SomeFile>& file, std::uint32_t crc32,
                 const std::vector<std::pair<std::uint64_t, std::uint64_t>>& parts) {
  const auto checked = CheckCrc32InOrder(file, "r", 2, 6, crc32);
  for (const auto& [begin, end] : parts) {
    Bytes bytes(end - begin);
    CKPT_RETURN_IF_ERROR(checked->ReadAt(begin, bytes));
    EXPECT_EQ(AsText(bytes), kContent.substr(begin, end - begin));
  }
  return OkStatus();
}

TEST(CheckCrc32InOrderTest, TheReadThatEndsTheRangeComparesIt) {
  const std::uint32_t crc32 = Crc32(AsBytes(kContent.substr(2, 6)));
  const auto file = std::make_shared<SomeFile>(false);
  EXPECT_THAT(ReadParts(file, crc32, {{2, 5}, {5, 6}, {6, 8}, {3, 4}}), IsOk());
  EXPECT_EQ(file->reads(), 4);
  EXPECT_THAT(ReadParts(file, crc32 ^ 1, {{2, 5}, {5, 7}}), IsOk());
  EXPECT_THAT(ReadParts(file, crc32 ^ 1, {{2, 5}, {5, 8}}), FailsWith(ErrorKind::kChecksum));
}

TEST(CheckCrc32InOrderTest, AReadElsewhereComparesAllOfItFirst) {
  const std::uint32_t crc32 = Crc32(AsBytes(kContent.substr(2, 6)));
  const auto file = std::make_shared<SomeFile>(false);
  EXPECT_THAT(ReadParts(file, crc32, {{3, 5}, {2, 8}}), IsOk());
  EXPECT_THAT(ReadParts(file, crc32 ^ 1, {{3, 5}}), FailsWith(ErrorKind::kChecksum));
  EXPECT_THAT(ReadParts(file, crc32 ^ 1, {{2, 5}, {2, 5}}), FailsWith(ErrorKind::kChecksum));
  EXPECT_THAT(ReadParts(file, crc32 ^ 1, {{2, 9}}), FailsWith(ErrorKind::kChecksum));
}

// Whoever reads on after an error must not take the bytes for good ones.
TEST(CheckCrc32InOrderTest, NothingIsReadAfterADifference) {
  const std::uint32_t crc32 = Crc32(AsBytes(kContent.substr(2, 6)));
  const auto file = std::make_shared<SomeFile>(false);
  Bytes whole(6);
  Bytes part(2);
  const auto in_order = CheckCrc32InOrder(file, "r", 2, 6, crc32 ^ 1);
  EXPECT_THAT(in_order->ReadAt(2, whole), FailsWith(ErrorKind::kChecksum));
  EXPECT_THAT(in_order->ReadAt(2, whole), FailsWith(ErrorKind::kChecksum));
  EXPECT_THAT(in_order->ReadAt(4, part), FailsWith(ErrorKind::kChecksum));
  const auto elsewhere = CheckCrc32InOrder(file, "r", 2, 6, crc32 ^ 1);
  EXPECT_THAT(elsewhere->ReadAt(4, part), FailsWith(ErrorKind::kChecksum));
  EXPECT_THAT(elsewhere->ReadAt(2, part), FailsWith(ErrorKind::kChecksum));
}

// The first read ends with an error after half of it.
class TornFile final : public SomeFile {
 public:
  TornFile() : SomeFile(false) {}
  Status ReadInPieces(std::uint64_t offset, MutableByteSpan out,
                      const std::function<Status(ByteSpan)>& seen) const override {
    if (!is_torn_) return SomeFile::ReadInPieces(offset, out, seen);
    is_torn_ = false;
    CKPT_RETURN_IF_ERROR(SomeFile::ReadInPieces(offset, out.first(out.size() / 2), seen));
    return Error(ErrorKind::kIo, "injected");
  }

 private:
  mutable bool is_torn_ = true;
};

TEST(CheckCrc32InOrderTest, AReadThatFailedIsRepeated) {
  const std::uint32_t crc32 = Crc32(AsBytes(kContent.substr(2, 6)));
  const auto checked = CheckCrc32InOrder(std::make_shared<TornFile>(), "r", 2, 6, crc32);
  Bytes whole(6);
  EXPECT_THAT(checked->ReadAt(2, whole), FailsWith(ErrorKind::kIo));
  EXPECT_THAT(checked->ReadAt(2, whole), IsOk());
}

TEST(CheckCrc32InOrderTest, ARangeOfNothingIsComparedToo) {
  const auto file = std::make_shared<SomeFile>(false);
  EXPECT_THAT(CheckCrc32InOrder(file, "r", 2, 0, 0)->ReadAt(2, {}), IsOk());
  EXPECT_THAT(CheckCrc32InOrder(file, "r", 2, 0, 1)->ReadAt(2, {}),
              FailsWith(ErrorKind::kChecksum));
}

TEST(CheckCrc32InOrderTest, AFileWhoseBytesAreCheckedAnywayStaysAsItIs) {
  const std::shared_ptr<const ReadableFile> file = std::make_shared<SomeFile>(true);
  EXPECT_EQ(CheckCrc32InOrder(file, "r", 2, 6, 0), file);
}

}  // namespace
}  // namespace ckpt
