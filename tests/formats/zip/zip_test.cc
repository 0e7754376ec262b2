#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/endian.h"
#include "core/base/hash.h"
#include "formats/zip/internal/format.h"
#include "formats/zip/reader.h"
#include "formats/zip/writer.h"
#include "tests/testing/matchers.h"

namespace ckpt::zip {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::SizeIs;
using namespace std::string_literals;

struct NamedPayload {
  std::string name;
  std::string payload;
};

Bytes ArchiveOf(const std::vector<NamedPayload>& records) {
  Writer zip;
  for (const NamedPayload& record : records) zip.Add(record.name, AsBytes(record.payload));
  return std::move(zip).Finish().front().bytes;
}

Bytes SmallArchive() {
  return ArchiveOf({{"data.pkl", "\x80\x02N."}, {"empty", ""}, {"data/0", "elements"}});
}

// The archive in the middle of a file, as a DCP item lies.
Result<Archive> OpenInside(const Bytes& archive) {
  Bytes file(100, std::byte{0xEE});
  Append(ByteSpan(archive), file);
  file.insert(file.end(), 50, std::byte{0xEE});
  return Archive::Open(MakeMemoryFile("f", std::move(file)), 100, archive.size());
}

std::size_t FindText(const Bytes& bytes, std::string_view text, std::size_t from = 0) {
  return AsText(bytes).find(text, from);
}

// As torch's own reader, to which such names are the same.
TEST(ZipTest, DoesNotTellCasesApart) {
  const Result<Archive> archive = OpenInside(ArchiveOf({{"data.pkl", "N."}, {"ByteOrder", "big"}}));
  ASSERT_THAT(archive, IsOk());
  const Record* const record = archive->Find("byteorder");
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->name, "ByteOrder");
  const Result<Archive> twice = OpenInside(ArchiveOf({{"data/a", "1"}, {"data/A", "2"}}));
  ASSERT_THAT(twice, FailsWith(ErrorKind::kBadItem));
  EXPECT_THAT(twice.status().first().message, HasSubstr("occurs twice"));
}

TEST(ZipTest, ReadsWhatItWrote) {
  const Result<Archive> archive = OpenInside(SmallArchive());
  ASSERT_THAT(archive, IsOk());
  EXPECT_EQ(archive->prefix(), "archive/");
  ASSERT_THAT(archive->records(), SizeIs(3));
  EXPECT_THAT(archive->warnings(), IsEmpty());
  const Record* data = archive->Find("data/0");
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
  const Result<Archive> archive = OpenInside(SmallArchive());
  ASSERT_THAT(archive, IsOk());
  EXPECT_THAT(archive->Read(*archive->Find("data/0"), 7), FailsWith(ErrorKind::kResource));
}

TEST(ZipTest, ForeignPayloadGivesTheSameArchive) {
  const std::string payload(1000, 'p');
  const Bytes whole = ArchiveOf({{"a", "x"}, {"data/0", payload}, {"b", "y"}});
  Writer zip;
  zip.Add("a", AsBytes("x"));
  zip.AddForeign("data/0", payload.size(), Crc32(AsBytes(payload)));
  zip.Add("b", AsBytes("y"));
  const std::vector<Part> parts = std::move(zip).Finish();
  ASSERT_THAT(parts, SizeIs(2));
  Bytes joined = parts[0].bytes;
  Append(payload, joined);
  EXPECT_EQ(parts[1].offset_bytes, joined.size());
  Append(ByteSpan(parts[1].bytes), joined);
  EXPECT_EQ(joined, whole);
}

TEST(ZipTest, ForeignPayloadsMayBeAny) {
  const std::vector<std::string> payloads = {std::string(1000, 'p'), "", "x", std::string(64, 'q')};
  Writer all;
  Writer framed;
  std::vector<std::uint64_t> offsets;
  for (const std::string& payload : payloads) {
    const std::string name = "data/" + std::to_string(offsets.size());
    all.Add(name, AsBytes(payload));
    offsets.push_back(framed.AddForeign(name, payload.size(), Crc32(AsBytes(payload))));
  }
  const std::vector<Part> parts = std::move(framed).Finish();
  ASSERT_THAT(parts, SizeIs(payloads.size() + 1));
  Bytes joined;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].offset_bytes, joined.size());
    Append(ByteSpan(parts[i].bytes), joined);
    if (i == payloads.size()) break;
    EXPECT_EQ(offsets[i], joined.size());
    Append(payloads[i], joined);
  }
  EXPECT_EQ(joined, std::move(all).Finish().front().bytes);
}

TEST(ZipTest, ReportsAFlippedPayloadBit) {
  Bytes bytes = SmallArchive();
  bytes[FindText(bytes, "elements")] ^= std::byte{1};
  const Result<Archive> archive = OpenInside(bytes);
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
  EXPECT_THAT(Archive::Open(MakeMemoryFile("f", std::move(bytes)), 0, size),
              FailsWith(ErrorKind::kTruncated));
}

TEST(ZipTest, SaysThatBytesFollowTheEnd) {
  Bytes bytes = SmallArchive();
  bytes.resize(bytes.size() + 100);
  const std::uint64_t size = bytes.size();
  const auto archive = Archive::Open(MakeMemoryFile("f", std::move(bytes)), 0, size);
  ASSERT_THAT(archive, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(archive.status().first().actual, "100 B");
}

TEST(ZipTest, SurvivesEveryFlippedByte) {
  const Bytes good = SmallArchive();
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int bit : {0, 7}) {
      Bytes bytes = good;
      bytes[at] ^= static_cast<std::byte>(1 << bit);
      const Result<Archive> archive = OpenInside(bytes);
      if (!archive.ok()) continue;
      for (const Record& record : archive->records()) {
        // Whatever the directory says now, a record lies inside the archive.
        EXPECT_GE(record.offset_bytes, 100u);
        EXPECT_LE(record.offset_bytes + record.size_bytes, 100 + good.size());
      }
    }
  }
}

TEST(ZipTest, RefusesDuplicateNames) {
  const Result<Archive> archive = OpenInside(ArchiveOf({{"data/0", "a"}, {"data/0", "b"}}));
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
  const Result<Archive> archive = OpenInside(bytes);
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
  const NamedPayload good = {"data.pkl", "p"};
  const NamedPayload evil = {"aa/bb/cc", "evil"};
  const std::vector<std::pair<std::string, std::vector<NamedPayload>>> cases = {
      {"archive/../../cc", {good, evil}},
      {"archive/aa/bb/..", {good, evil}},
      {"/rchive/aa/bb/cc", {good, evil}},
      {"archive/aa\0bb/cc"s, {good, evil}},
      {"brchive/aa/bb/cc", {good, evil}},
      // The first record names the folder, unless it leaves every one.
      {"/rchive/aa/bb/cc", {evil, good}},
      {"../hive/aa/bb/cc", {evil, good}}};
  for (const auto& [name, records] : cases) {
    Bytes bytes = ArchiveOf(records);
    for (std::size_t at = 0; (at = FindText(bytes, "archive/aa/bb/cc", at)) != std::string::npos;) {
      std::copy_n(AsBytes(name).begin(), 16, bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
    const Result<Archive> archive = OpenInside(bytes);
    ASSERT_THAT(archive, IsOk());
    EXPECT_EQ(archive->prefix(), "archive/");
    ASSERT_THAT(archive->records(), SizeIs(1));
    EXPECT_EQ(archive->records()[0].name, "data.pkl");
    ASSERT_THAT(archive->warnings(), SizeIs(1));
    EXPECT_EQ(archive->warnings()[0].kind, ErrorKind::kUnsafePath);
    EXPECT_EQ(archive->warnings()[0].actual, name);
  }
}

TEST(ZipTest, AnEmptyRecordMayLeaveItsSizesToAnExtraField) {
  const auto with_sizes = [](std::uint32_t stored, std::uint32_t size) {
    Bytes bytes = SmallArchive();
    const std::size_t name_at = FindText(bytes, "archive/empty");
    StoreLe(stored, &bytes[name_at - kLocalHeaderBytes + 18]);
    StoreLe(size, &bytes[name_at - kLocalHeaderBytes + 22]);
    return OpenInside(bytes);
  };
  EXPECT_THAT(with_sizes(kSeeZip64, kSeeZip64), IsOk());
  EXPECT_THAT(with_sizes(kSeeZip64, 0), IsOk());
  EXPECT_THAT(with_sizes(1, 0), FailsWith(ErrorKind::kBadItem));
  EXPECT_THAT(with_sizes(0, 1), FailsWith(ErrorKind::kBadItem));
}

// An archive of one record of 8 bytes whose directory entry says "see zip64" of both sizes and has
// this extra field.
Result<Archive> OpenWithExtra(std::string_view extra) {
  Bytes bytes = ArchiveOf({{"data.pkl", "12345678"}});
  const std::size_t name_at = AsText(bytes).rfind("archive/data.pkl");
  StoreLe<std::uint32_t>(kSeeZip64, &bytes[name_at - kCentralEntryBytes + 20]);
  StoreLe<std::uint32_t>(kSeeZip64, &bytes[name_at - kCentralEntryBytes + 24]);
  StoreLe(static_cast<std::uint16_t>(extra.size()), &bytes[name_at - kCentralEntryBytes + 30]);
  bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(name_at + 16), AsBytes(extra).begin(),
               AsBytes(extra).end());
  const std::size_t end_at = bytes.size() - kEndBytes;
  const std::size_t locator_at = end_at - kZip64LocatorBytes;
  const std::size_t wide_end_at = locator_at - kZip64EndBytes;
  const auto size = static_cast<std::uint32_t>(kCentralEntryBytes + 16 + extra.size());
  StoreLe<std::uint64_t>(size, &bytes[wide_end_at + 40]);
  StoreLe<std::uint64_t>(wide_end_at, &bytes[locator_at + 8]);
  StoreLe<std::uint32_t>(size, &bytes[end_at + 12]);
  return OpenInside(bytes);
}

TEST(ZipTest, FindsLargeSizesInTheZip64Field) {
  const std::string sizes = "\x08\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0"s;
  const std::string time = "UT\1\0t"s;
  EXPECT_THAT(OpenWithExtra("\1\0\x10\0"s + sizes), IsOk());
  EXPECT_THAT(OpenWithExtra(time + "\1\0\x10\0"s + sizes), IsOk());
  EXPECT_THAT(OpenWithExtra("\1\0\x10\0"s + sizes + time), IsOk());
  EXPECT_THAT(OpenWithExtra("\1\0\x08\0"s + sizes.substr(8)), FailsWith(ErrorKind::kBadItem));
  EXPECT_THAT(OpenWithExtra("\1\0\x11\0"s + sizes), FailsWith(ErrorKind::kBadItem));
  EXPECT_THAT(OpenWithExtra("\1\0\x08\0"s + sizes.substr(8)).status().first().message,
              HasSubstr("zip64 field of a record is too short"));
  EXPECT_THAT(OpenWithExtra(time), FailsWith(ErrorKind::kBadItem)) << "no zip64 field";
  EXPECT_THAT(OpenWithExtra("UT\0"s), FailsWith(ErrorKind::kBadItem)) << "no whole field";
}

TEST(ZipTest, ReadsAnArchiveOfNothingButNoPartOfASplitOne) {
  const auto end_record = [](std::uint16_t disk, std::uint16_t first_disk) {
    Bytes bytes(kEndBytes);
    StoreLe<std::uint32_t>(kEndSignature, bytes.data());
    StoreLe(disk, &bytes[4]);
    StoreLe(first_disk, &bytes[6]);
    return OpenInside(bytes);
  };
  ASSERT_THAT(end_record(0, 0), IsOk());
  EXPECT_THAT(end_record(0, 0)->records(), IsEmpty());
  EXPECT_THAT(end_record(1, 0), FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(end_record(0, 1), FailsWith(ErrorKind::kUnsupported));
}

TEST(ZipTest, WithoutChecksumsNothingIsCompared) {
  Writer zip;
  zip.AddForeign("data/0", 8, 0);
  zip.Add("empty", {});
  const std::vector<Part> parts = std::move(zip).Finish();
  Bytes bytes = parts.front().bytes;
  Append("elements", bytes);
  Append(ByteSpan(parts.back().bytes), bytes);
  const Result<Archive> archive = OpenInside(bytes);
  ASSERT_THAT(archive, IsOk());
  EXPECT_FALSE(archive->has_checksums());
  EXPECT_THAT(archive->Verify(*archive->Find("data/0")), IsOk());
  const Result<Bytes> payload = archive->Read(*archive->Find("data/0"), 8);
  ASSERT_THAT(payload, IsOk());
  EXPECT_EQ(AsText(*payload), "elements");
}

TEST(ZipTest, RefusesARangeThatIsNotInTheFile) {
  const Bytes bytes = SmallArchive();
  const auto open = [&](std::uint64_t offset, std::uint64_t length) {
    return Archive::Open(MakeMemoryFile("f", bytes), offset, length);
  };
  EXPECT_THAT(open(0, bytes.size()), IsOk());
  EXPECT_THAT(open(0, bytes.size() + 1), FailsWith(ErrorKind::kTruncated));
  EXPECT_THAT(open(1, bytes.size()), FailsWith(ErrorKind::kTruncated));
  EXPECT_THAT(open(~std::uint64_t{0}, 2), FailsWith(ErrorKind::kTruncated));
  EXPECT_THAT(open(0, 0), FailsWith(ErrorKind::kBadItem));
  EXPECT_THAT(open(0, bytes.size() + 1).status().first().message, "the file ends before its item");
}

TEST(ZipTest, LaysRecordsOutAsTorchDoes) {
  // torch.save(torch.ones(2)) into a stream, torch 2.11: docs/formats/torch_save.md.
  Writer zip;
  zip.Add("data.pkl", Bytes(150));
  zip.Add(".format_version", AsBytes("1"));
  zip.Add(".storage_alignment", AsBytes("64"));
  zip.Add("byteorder", AsBytes("little"));
  zip.Add("data/0", Bytes(8));
  zip.Add("version", AsBytes("3\n"));
  zip.Add(".data/serialization_id", Bytes(40));
  Bytes bytes = std::move(zip).Finish().front().bytes;
  EXPECT_EQ(bytes.size(), 1577u);
  const std::uint64_t size = bytes.size();
  const Result<Archive> archive = Archive::Open(MakeMemoryFile("f", std::move(bytes)), 0, size);
  ASSERT_THAT(archive, IsOk());
  std::vector<std::uint64_t> offsets;
  for (const Record& record : archive->records()) offsets.push_back(record.offset_bytes);
  EXPECT_THAT(offsets, ElementsAre(64, 320, 448, 576, 704, 832, 960));
}

}  // namespace
}  // namespace ckpt::zip
