// Archives of files that are not memory: huge ones, and ones whose reads fail.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "core/base/units.h"
#include "formats/zip/internal/format.h"
#include "formats/zip/reader.h"
#include "formats/zip/writer.h"
#include "tests/testing/matchers.h"

namespace ckpt::zip {
namespace {

using testing::FailsWith;
using testing::IsOk;

// Parts of a file, with zeros between them that nobody stores.
class HollowFile final : public ReadableFile {
 public:
  explicit HollowFile(std::vector<Part> parts) : parts_(std::move(parts)) {}

  // Read number `read` (from 0) will fail.
  void FailAt(int read) { reads_left_ = read; }

  std::uint64_t size_bytes() const override {
    return parts_.back().offset_bytes + parts_.back().bytes.size();
  }
  const std::string& name() const override { return name_; }
  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    if (reads_left_-- == 0) return Error(ErrorKind::kIo, "injected fault");
    std::fill(out.begin(), out.end(), std::byte{0});
    for (const Part& part : parts_) CopyOverlap(part.bytes, part.offset_bytes, offset, out);
    return OkStatus();
  }
  Result<std::unique_ptr<FileView>> View() const override {
    return Error(ErrorKind::kIo, "no view");
  }

 private:
  static void CopyOverlap(const Bytes& part, std::uint64_t part_at, std::uint64_t offset,
                          MutableByteSpan out) {
    const std::uint64_t begin = std::max(part_at, offset);
    const std::uint64_t end = std::min(part_at + part.size(), offset + out.size());
    if (begin >= end) return;
    std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(begin - part_at), end - begin,
                out.begin() + static_cast<std::ptrdiff_t>(begin - offset));
  }

  std::vector<Part> parts_;
  mutable int reads_left_ = std::numeric_limits<int>::max();
  std::string name_ = "hollow";
};

std::vector<Part> PartsAround(std::uint64_t payload_bytes) {
  Writer zip;
  zip.Add("data.pkl", AsBytes("p"));
  zip.AddForeign("data/0", payload_bytes, 0);
  zip.Add("version", AsBytes("3\n"));
  return std::move(zip).Finish();
}

TEST(LargeZipTest, ReadsRecordsPastFourGigabytes) {
  constexpr std::uint64_t kHole = 5 * kGiB;
  const auto file = std::make_shared<HollowFile>(PartsAround(kHole));
  const Result<Archive> archive = Archive::Open(file, 0, file->size_bytes());
  ASSERT_THAT(archive, IsOk());
  EXPECT_EQ(archive->Find("data/0")->size_bytes, kHole);
  EXPECT_EQ(archive->Find("data/0")->offset_bytes % 64, 0u);
  EXPECT_GT(archive->Find("version")->offset_bytes, kHole);
  EXPECT_THAT(archive->Read(*archive->Find("version"), 10), IsOk());
}

TEST(LargeZipTest, RefusesADirectoryOfAbsurdSize) {
  const auto with_directory = [](std::uint64_t size_bytes) {
    Part tail = {.offset_bytes = size_bytes, .bytes = Bytes(kEndBytes)};
    StoreLe<std::uint32_t>(kEndSignature, tail.bytes.data());
    StoreLe<std::uint16_t>(1, &tail.bytes[8]);
    StoreLe<std::uint16_t>(1, &tail.bytes[10]);
    StoreLe(static_cast<std::uint32_t>(size_bytes), &tail.bytes[12]);
    const auto file = std::make_shared<HollowFile>(std::vector<Part>{std::move(tail)});
    return Archive::Open(file, 0, file->size_bytes());
  };
  // The largest that is read at all holds zeros instead of entries.
  EXPECT_THAT(with_directory(256 * kMiB), FailsWith(ErrorKind::kBadItem));
  EXPECT_THAT(with_directory(256 * kMiB + 1), FailsWith(ErrorKind::kResource));
}

TEST(LargeZipTest, ReportsEveryReadThatFails) {
  // A comment pushes all that is looked for away from the ends that are read at once.
  constexpr std::uint16_t kCommentBytes = 60'000;
  constexpr std::uint64_t kHole = 100'000;
  std::vector<Part> parts = PartsAround(kHole);
  Bytes& tail = parts.back().bytes;
  StoreLe(kCommentBytes, &tail[tail.size() - sizeof(kCommentBytes)]);
  tail.resize(tail.size() + kCommentBytes);
  const auto file = std::make_shared<HollowFile>(std::move(parts));
  int reads = 0;
  while (true) {
    file->FailAt(reads);
    const Result<Archive> archive = Archive::Open(file, 0, file->size_bytes());
    if (archive.ok()) break;
    EXPECT_THAT(archive, FailsWith(ErrorKind::kIo)) << "read " << reads;
    ++reads;
  }
  // Both ends, the comment, end record, locator, zip64 end record, directory, and a local header.
  EXPECT_EQ(reads, 8);
  file->FailAt(reads);
  const Result<Archive> archive = Archive::Open(file, 0, file->size_bytes());
  ASSERT_THAT(archive, IsOk());
  file->FailAt(0);
  EXPECT_THAT(archive->Read(*archive->Find("version"), 10), FailsWith(ErrorKind::kIo));
  file->FailAt(0);
  EXPECT_THAT(archive->Verify(*archive->Find("version")), FailsWith(ErrorKind::kIo));
}

}  // namespace
}  // namespace ckpt::zip
