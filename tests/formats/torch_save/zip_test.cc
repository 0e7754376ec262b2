#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/endian.h"
#include "core/base/hash.h"
#include "formats/torch_save/zip_reader.h"
#include "formats/torch_save/zip_writer.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_save {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::SizeIs;

struct NamedPayload {
  std::string name;
  std::string payload;
};

Bytes Archive(const std::vector<NamedPayload>& records) {
  ZipWriter zip;
  for (const NamedPayload& record : records) zip.Add(record.name, AsBytes(record.payload));
  return std::move(zip).Finish().head;
}

Bytes SmallArchive() {
  return Archive({{"data.pkl", "\x80\x02N."}, {"empty", ""}, {"data/0", "elements"}});
}

// The archive in the middle of a file, as a DCP item lies.
Result<ZipArchive> OpenInside(const Bytes& archive) {
  Bytes file(100, std::byte{0xEE});
  Append(ByteSpan(archive), file);
  file.insert(file.end(), 50, std::byte{0xEE});
  return ZipArchive::Open(MakeMemoryFile("f", std::move(file)), 100, archive.size());
}

std::size_t FindText(const Bytes& bytes, std::string_view text, std::size_t from = 0) {
  return AsText(bytes).find(text, from);
}

TEST(ZipTest, ReadsWhatItWrote) {
  const Result<ZipArchive> archive = OpenInside(SmallArchive());
  ASSERT_THAT(archive, IsOk());
  EXPECT_EQ(archive->prefix(), "archive/");
  ASSERT_THAT(archive->records(), SizeIs(3));
  EXPECT_THAT(archive->warnings(), IsEmpty());
  const ZipRecord* data = archive->Find("data/0");
  ASSERT_NE(data, nullptr);
  EXPECT_EQ((data->offset_bytes - 100) % 64, 0u);
  const Result<Bytes> payload = archive->Read(*data, 100);
  ASSERT_THAT(payload, IsOk());
  EXPECT_EQ(AsText(*payload), "elements");
  EXPECT_THAT(archive->Verify(*data), IsOk());
  EXPECT_THAT(archive->Read(*archive->Find("empty"), 0), IsOk());
  EXPECT_EQ(archive->Find("data/1"), nullptr);
}

TEST(ZipTest, LimitsWhatIsReadAtOnce) {
  const Result<ZipArchive> archive = OpenInside(SmallArchive());
  ASSERT_THAT(archive, IsOk());
  EXPECT_THAT(archive->Read(*archive->Find("data/0"), 7), FailsWith(ErrorKind::kResource));
}

TEST(ZipTest, ForeignPayloadGivesTheSameArchive) {
  const std::string payload(1000, 'p');
  const Bytes whole = Archive({{"a", "x"}, {"data/0", payload}, {"b", "y"}});
  ZipWriter zip;
  zip.Add("a", AsBytes("x"));
  zip.AddForeign("data/0", payload.size(), Crc32(AsBytes(payload)));
  zip.Add("b", AsBytes("y"));
  const ZipFraming framing = std::move(zip).Finish();
  Bytes joined = framing.head;
  Append(payload, joined);
  Append(ByteSpan(framing.tail), joined);
  EXPECT_EQ(joined, whole);
}

TEST(ZipTest, ReadsRecordsPastFourGigabytes) {
  // Sparse in memory: only the framing is kept.
  class FramedFile final : public ReadableFile {
   public:
    FramedFile(ZipFraming framing, std::uint64_t hole)
        : framing_(std::move(framing)), hole_(hole) {}
    std::uint64_t size_bytes() const override {
      return framing_.head.size() + hole_ + framing_.tail.size();
    }
    const std::string& name() const override { return name_; }
    Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::uint64_t at = offset + i;
        const std::uint64_t tail_at = framing_.head.size() + hole_;
        out[i] = at < framing_.head.size() ? framing_.head[at]
                 : at < tail_at            ? std::byte{0}
                                           : framing_.tail[at - tail_at];
      }
      return OkStatus();
    }
    Result<std::unique_ptr<FileView>> View() const override {
      return Error(ErrorKind::kIo, "no view");
    }

   private:
    ZipFraming framing_;
    std::uint64_t hole_;
    std::string name_ = "sparse";
  };
  constexpr std::uint64_t kHole = 5ULL << 30;
  ZipWriter zip;
  zip.Add("data.pkl", AsBytes("p"));
  zip.AddForeign("data/0", kHole, 0);
  zip.Add("version", AsBytes("3\n"));
  const auto file = std::make_shared<FramedFile>(std::move(zip).Finish(), kHole);
  const Result<ZipArchive> archive = ZipArchive::Open(file, 0, file->size_bytes());
  ASSERT_THAT(archive, IsOk());
  EXPECT_EQ(archive->Find("data/0")->size_bytes, kHole);
  EXPECT_EQ(archive->Find("data/0")->offset_bytes % 64, 0u);
  EXPECT_GT(archive->Find("version")->offset_bytes, kHole);
  EXPECT_THAT(archive->Read(*archive->Find("version"), 10), IsOk());
}

TEST(ZipTest, ReportsAFlippedPayloadBit) {
  Bytes bytes = SmallArchive();
  bytes[FindText(bytes, "elements")] ^= std::byte{1};
  const Result<ZipArchive> archive = OpenInside(bytes);
  ASSERT_THAT(archive, IsOk());
  EXPECT_THAT(archive->Verify(*archive->Find("data/0")), FailsWith(ErrorKind::kChecksum));
  EXPECT_THAT(archive->Read(*archive->Find("data/0"), 100), FailsWith(ErrorKind::kChecksum));
}

TEST(ZipTest, RefusesEveryCutOff) {
  const Bytes bytes = SmallArchive();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT(OpenInside(cut), FailsWith(ErrorKind::kBadItem)) << size << " bytes";
  }
}

TEST(ZipTest, CallsAWholeFileWithoutEndTruncated) {
  Bytes bytes = SmallArchive();
  bytes.resize(bytes.size() - 1);
  const std::uint64_t size = bytes.size();
  EXPECT_THAT(ZipArchive::Open(MakeMemoryFile("f", std::move(bytes)), 0, size),
              FailsWith(ErrorKind::kTruncated));
}

TEST(ZipTest, SurvivesEveryFlippedByte) {
  const Bytes good = SmallArchive();
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int bit : {0, 7}) {
      Bytes bytes = good;
      bytes[at] ^= static_cast<std::byte>(1 << bit);
      const Result<ZipArchive> archive = OpenInside(bytes);
      if (!archive.ok()) continue;
      for (const ZipRecord& record : archive->records()) {
        // Whatever the directory says now, a record lies inside the archive.
        EXPECT_GE(record.offset_bytes, 100u);
        EXPECT_LE(record.offset_bytes + record.size_bytes, 100 + good.size());
      }
    }
  }
}

TEST(ZipTest, RefusesDuplicateNames) {
  const Result<ZipArchive> archive = OpenInside(Archive({{"data/0", "a"}, {"data/0", "b"}}));
  ASSERT_THAT(archive, FailsWith(ErrorKind::kBadItem));
  EXPECT_THAT(archive.status().first().message, HasSubstr("archive/data/0"));
}

TEST(ZipTest, RefusesADirectoryEntryThatPointsAtAnotherRecord) {
  Bytes bytes = SmallArchive();
  // The last 'archive/data/0' is that of the directory; its local header offset stands 4 bytes
  // before the name.
  const std::size_t name_at = AsText(bytes).rfind("archive/data/0");
  StoreLe<std::uint32_t>(0, &bytes[name_at - 4]);
  EXPECT_THAT(OpenInside(bytes), FailsWith(ErrorKind::kBadItem));
}

TEST(ZipTest, RefusesOverlappingRecords) {
  Bytes bytes = SmallArchive();
  const std::size_t name_at = AsText(bytes).rfind("archive/data.pkl");
  StoreLe<std::uint32_t>(200, &bytes[name_at - 46 + 20]);
  StoreLe<std::uint32_t>(200, &bytes[name_at - 46 + 24]);
  const Result<ZipArchive> archive = OpenInside(bytes);
  ASSERT_THAT(archive, FailsWith(ErrorKind::kBadItem));
  EXPECT_THAT(archive.status().first().message, HasSubstr("overlap"));
}

TEST(ZipTest, RefusesCompressedRecords) {
  Bytes bytes = SmallArchive();
  const std::size_t name_at = AsText(bytes).rfind("archive/data.pkl");
  StoreLe<std::uint16_t>(8, &bytes[name_at - 46 + 10]);
  EXPECT_THAT(OpenInside(bytes), FailsWith(ErrorKind::kUnsupported));
}

TEST(ZipTest, IgnoresNamesThatLeaveTheFolderWithAWarning) {
  Bytes bytes = Archive({{"data.pkl", "p"}, {"aa/bb/cc", "evil"}});
  for (std::size_t at = 0; (at = FindText(bytes, "archive/aa/bb/cc", at)) != std::string::npos;) {
    std::copy_n(AsBytes("archive/../../cc").begin(), 16,
                bytes.begin() + static_cast<std::ptrdiff_t>(at));
  }
  const Result<ZipArchive> archive = OpenInside(bytes);
  ASSERT_THAT(archive, IsOk());
  EXPECT_THAT(archive->records(), SizeIs(1));
  ASSERT_THAT(archive->warnings(), SizeIs(1));
  EXPECT_EQ(archive->warnings()[0].kind, ErrorKind::kUnsafePath);
}

TEST(ZipTest, LaysRecordsOutAsTorchDoes) {
  // torch.save(torch.ones(2)) into a stream, torch 2.11: docs/formats/torch_save.md.
  ZipWriter zip;
  zip.Add("data.pkl", Bytes(150));
  zip.Add(".format_version", AsBytes("1"));
  zip.Add(".storage_alignment", AsBytes("64"));
  zip.Add("byteorder", AsBytes("little"));
  zip.Add("data/0", Bytes(8));
  zip.Add("version", AsBytes("3\n"));
  zip.Add(".data/serialization_id", Bytes(40));
  Bytes bytes = std::move(zip).Finish().head;
  EXPECT_EQ(bytes.size(), 1577u);
  const std::uint64_t size = bytes.size();
  const Result<ZipArchive> archive =
      ZipArchive::Open(MakeMemoryFile("f", std::move(bytes)), 0, size);
  ASSERT_THAT(archive, IsOk());
  std::vector<std::uint64_t> offsets;
  for (const ZipRecord& record : archive->records()) offsets.push_back(record.offset_bytes);
  EXPECT_THAT(offsets, ElementsAre(64, 320, 448, 576, 704, 832, 960));
}

}  // namespace
}  // namespace ckpt::torch_save
