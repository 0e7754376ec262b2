#include "formats/zip/reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/base/units.h"
#include "core/base/warning.h"
#include "core/io/range_crc.h"
#include "formats/zip/internal/format.h"

namespace ckpt::zip {
namespace {

// What torch.export.save wrote before torch 2.7: files without a folder around them.
constexpr std::string_view kExportedProgram = "serialized_exported_program.json";
// Where TorchScript keeps its sources, the only records that torch compresses.
constexpr std::string_view kScriptFolder = "/code/__torch__";

// What of an archive is read at once: enough for the headers in front of the first payload, and for
// the directory of one tensor. torch's take 704 and 896 bytes.
constexpr std::uint64_t kEdgeBytes = kKiB;
// An archive that is no larger is read whole.
constexpr std::uint64_t kSmallArchiveBytes = 8 * kKiB;
constexpr std::uint64_t kMaxDirectoryBytes = 256 * kMiB;

// A byte range of a file. Its beginning and its end are read once and kept.
class Range {
 public:
  Range(const ReadableFile& file, std::uint64_t offset, std::uint64_t length)
      : file_(file), offset_(offset), length_(length) {}

  [[nodiscard]] std::uint64_t length() const { return length_; }
  [[nodiscard]] std::string Describe() const {
    return DescribeRange(file_.name(), offset_, length_);
  }
  Status Bad(std::string_view rule) const {
    return Error(ErrorKind::kBadItem, rule).File(Describe());
  }

  Status ReadEdges() {
    head_.resize(length_ <= kSmallArchiveBytes ? length_ : kEdgeBytes);
    CKPT_RETURN_IF_ERROR(file_.ReadAt(offset_, head_));
    if (head_.size() == length_) return OkStatus();
    tail_.resize(kEdgeBytes);
    return file_.ReadAt(offset_ + length_ - kEdgeBytes, tail_);
  }

  // REQUIRES: the bytes lie inside the range.
  Status ReadAt(std::uint64_t at, MutableByteSpan out) const {
    CKPT_CHECK(RangeFits(at, out.size(), length_));
    if (RangeFits(at, out.size(), head_.size())) {
      std::copy_n(head_.begin() + static_cast<std::ptrdiff_t>(at), out.size(), out.begin());
      return OkStatus();
    }
    const std::uint64_t tail_at = length_ - tail_.size();
    if (at >= tail_at) {
      std::copy_n(tail_.begin() + static_cast<std::ptrdiff_t>(at - tail_at), out.size(),
                  out.begin());
      return OkStatus();
    }
    return file_.ReadAt(offset_ + at, out);
  }

  Result<Bytes> Read(std::uint64_t at, std::uint64_t size) const {
    Bytes bytes(size);
    CKPT_RETURN_IF_ERROR(ReadAt(at, bytes));
    return bytes;
  }

 private:
  const ReadableFile& file_;
  std::uint64_t offset_;
  std::uint64_t length_;
  Bytes head_;
  Bytes tail_;
};

// Where the central directory lies in the range.
struct Directory {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t count = 0;
  std::uint64_t limit = 0;  // start of the end records: the directory lies before
};

// An entry of the central directory. Offsets are from the start of the range.
struct Entry {
  std::string name;
  std::uint16_t method = 0;
  std::uint32_t crc32 = 0;
  std::uint64_t size = 0;
  std::uint64_t header_at = 0;
  std::uint64_t payload_at = 0;  // known from the local header only
};

// The end record is the last thing in an archive; only its own comment may follow. An end record
// inside the comment of another is an error, because readers that search from the end would take
// it.
Result<std::optional<std::uint64_t>> FindEnd(const Range& range) {
  constexpr std::uint64_t kMaxComment = 0xFFFF;
  if (range.length() < kEndBytes) return std::optional<std::uint64_t>();
  for (const std::uint64_t window : {std::uint64_t{kEndBytes}, kEndBytes + kMaxComment}) {
    const std::uint64_t size = std::min(window, range.length());
    CKPT_ASSIGN_OR_RETURN(const Bytes tail, range.Read(range.length() - size, size));
    bool has_signature_behind = false;
    std::uint64_t bytes_behind = 0;
    // The search covers every place where a comment could be. A record that ends exactly with the
    // file is taken, whatever its numbers are.
    const std::uint64_t last = size - (size == kEndBytes ? kEndBytes : sizeof(kEndSignature));
    for (std::uint64_t at = last + 1; at-- > 0;) {
      if (LoadLe<std::uint32_t>(&tail[at]) != kEndSignature) continue;
      const bool ends_here =
          at + kEndBytes <= size && at + kEndBytes + LoadLe<std::uint16_t>(&tail[at + 20]) == size;
      if (!ends_here) {
        has_signature_behind = true;
        if (bytes_behind == 0 && at + kEndBytes < size) bytes_behind = size - at - kEndBytes;
        continue;
      }
      if (has_signature_behind) return range.Bad("two end records in the zip");
      return std::optional(range.length() - size + at);
    }
    if (bytes_behind > 0) {
      return Error(ErrorKind::kUnsupported, "bytes follow the end of the zip")
          .File(range.Describe())
          .Actual(FormatByteSize(bytes_behind))
          .Hint("cut them off: nothing says what they are");
    }
  }
  return std::optional<std::uint64_t>();
}

// Reads the zip64 end record through its locator, if there is one in front of the end record.
Status ReadZip64End(const Range& range, std::uint64_t end_at, Directory* directory) {
  if (end_at < kZip64LocatorBytes) return OkStatus();
  const std::uint64_t locator_at = end_at - kZip64LocatorBytes;
  CKPT_ASSIGN_OR_RETURN(const Bytes locator, range.Read(locator_at, kZip64LocatorBytes));
  if (LoadLe<std::uint32_t>(locator.data()) != kZip64LocatorSignature) return OkStatus();
  const auto at = LoadLe<std::uint64_t>(&locator[8]);
  if (!RangeFits(at, kZip64EndBytes, locator_at)) {
    return range.Bad("the zip64 end record lies outside the archive");
  }
  // Some readers follow the locator, others read the bytes right before it. Both must find the same
  // record.
  if (at + kZip64EndBytes != locator_at) {
    return range.Bad("the zip64 end record does not end where its locator begins");
  }
  CKPT_ASSIGN_OR_RETURN(const Bytes end, range.Read(at, kZip64EndBytes));
  if (LoadLe<std::uint32_t>(end.data()) != kZip64EndSignature) {
    return range.Bad("no zip64 end record where its locator points");
  }
  const Directory wide = {.offset = LoadLe<std::uint64_t>(&end[48]),
                          .size = LoadLe<std::uint64_t>(&end[40]),
                          .count = LoadLe<std::uint64_t>(&end[32]),
                          .limit = at};
  // The classic record repeats the numbers that are small enough for it.
  if ((directory->count != kSeeZip64Count && directory->count != wide.count) ||
      (directory->size != kSeeZip64 && directory->size != wide.size) ||
      (directory->offset != kSeeZip64 && directory->offset != wide.offset)) {
    return range.Bad("the two end records of the zip disagree");
  }
  *directory = wide;
  return OkStatus();
}

Result<Directory> LocateDirectory(const Range& range, bool is_whole_file) {
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> end_at, FindEnd(range));
  if (!end_at) {
    return Error(is_whole_file ? ErrorKind::kTruncated : ErrorKind::kBadItem,
                 "not a complete zip: no end record")
        .File(range.Describe())
        .Hint("a short file is a cut-off copy or an interrupted save");
  }
  CKPT_ASSIGN_OR_RETURN(const Bytes end, range.Read(*end_at, kEndBytes));
  if (LoadLe<std::uint16_t>(&end[4]) != 0 || LoadLe<std::uint16_t>(&end[6]) != 0) {
    return Error(ErrorKind::kUnsupported, "a zip split over several files").File(range.Describe());
  }
  if (LoadLe<std::uint16_t>(&end[8]) != LoadLe<std::uint16_t>(&end[10])) {
    return range.Bad("the two entry counts of the zip differ");
  }
  Directory directory = {.offset = LoadLe<std::uint32_t>(&end[16]),
                         .size = LoadLe<std::uint32_t>(&end[12]),
                         .count = LoadLe<std::uint16_t>(&end[10]),
                         .limit = *end_at};
  CKPT_RETURN_IF_ERROR(ReadZip64End(range, *end_at, &directory));
  if (!RangeFits(directory.offset, directory.size, directory.limit)) {
    return range.Bad("the central directory lies outside the archive");
  }
  // Readers that locate the directory by its end would find another one.
  if (directory.offset + directory.size != directory.limit) {
    return range.Bad("the central directory does not end where the end record begins");
  }
  if (directory.size > kMaxDirectoryBytes) {
    return Error(ErrorKind::kResource, "a zip directory of absurd size")
        .File(range.Describe())
        .Expected("at most " + FormatByteSize(kMaxDirectoryBytes))
        .Actual(FormatByteSize(directory.size));
  }
  if (directory.count > directory.size / kCentralEntryBytes) {
    return range.Bad("the central directory is too small for its entries");
  }
  return directory;
}

// Reads the fields of `entry` that are in the zip64 extra field. Their order is fixed: size, stored
// size, offset. Each is there only if its classic field holds the mark for it.
Status ApplyZip64Extra(const Range& range, ByteSpan extra, std::uint64_t* stored_size,
                       Entry* entry) {
  while (extra.size() >= 4) {
    const auto id = LoadLe<std::uint16_t>(extra.data());
    const std::size_t size = LoadLe<std::uint16_t>(&extra[2]);
    if (size > extra.size() - 4) return range.Bad("a zip extra field reaches outside its entry");
    ByteSpan field = extra.subspan(4, size);
    if (id == kZip64ExtraId) {
      for (std::uint64_t* value : {&entry->size, stored_size, &entry->header_at}) {
        if (*value != kSeeZip64) continue;
        if (field.size() < 8) return range.Bad("the zip64 field of a record is too short");
        *value = LoadLe<std::uint64_t>(field.data());
        field = field.subspan(8);
      }
      return OkStatus();
    }
    extra = extra.subspan(4 + size);
  }
  return OkStatus();
}

Result<Entry> ParseEntry(const Range& range, ByteSpan directory, std::size_t* at) {
  if (!RangeFits(*at, kCentralEntryBytes, directory.size())) {
    return range.Bad("the central directory ends inside an entry");
  }
  const std::byte* p = directory.data() + *at;
  if (LoadLe<std::uint32_t>(p) != kCentralEntrySignature) {
    return range.Bad("no entry of the central directory where one must be");
  }
  const std::size_t name_size = LoadLe<std::uint16_t>(p + 28);
  const std::size_t extra_size = LoadLe<std::uint16_t>(p + 30);
  const std::size_t comment_size = LoadLe<std::uint16_t>(p + 32);
  const std::size_t total = kCentralEntryBytes + name_size + extra_size + comment_size;
  if (!RangeFits(*at, total, directory.size())) {
    return range.Bad("the central directory ends inside an entry");
  }
  Entry entry;
  entry.name = AsText({p + kCentralEntryBytes, name_size});
  entry.method = LoadLe<std::uint16_t>(p + 10);
  entry.crc32 = LoadLe<std::uint32_t>(p + 16);
  entry.size = LoadLe<std::uint32_t>(p + 24);
  entry.header_at = LoadLe<std::uint32_t>(p + 42);
  std::uint64_t stored_size = LoadLe<std::uint32_t>(p + 20);
  CKPT_RETURN_IF_ERROR(ApplyZip64Extra(range, {p + kCentralEntryBytes + name_size, extra_size},
                                       &stored_size, &entry));
  if (entry.method != 0 && entry.name.find(kScriptFolder) != std::string_view::npos) {
    return TorchScriptError(range.Describe());
  }
  if (entry.name == kExportedProgram) return ExportArchiveError(range.Describe());
  const bool encrypted = (LoadLe<std::uint16_t>(p + 8) & kFlagsEncrypted) != 0;
  if (encrypted || entry.method != 0) {
    return Error(ErrorKind::kUnsupported,
                 fmt::format("record {} is {}", entry.name, encrypted ? "encrypted" : "compressed"))
        .File(range.Describe())
        .Hint("torch stores records as they are: another program has rewritten this file");
  }
  if (stored_size != entry.size) {
    return range.Bad(fmt::format("two sizes for the stored record {}", entry.name));
  }
  *at += total;
  return entry;
}

// Whether checksum and sizes of a local header are those of the directory. A writer that does not
// know them yet puts them into a descriptor after the payload, and large sizes into an extra field.
bool LocalSizesAgree(ByteSpan head, const Entry& entry) {
  if ((LoadLe<std::uint16_t>(&head[6]) & kFlagDataDescriptor) != 0) return true;
  const auto agrees = [&](std::size_t at) {
    const auto size = LoadLe<std::uint32_t>(&head[at]);
    return size == kSeeZip64 || size == entry.size;
  };
  return LoadLe<std::uint32_t>(&head[14]) == entry.crc32 && agrees(18) && agrees(22);
}

// Finds the payload, which follows the local header. The header must agree with the directory.
Status ReadLocalHeader(const Range& range, std::uint64_t limit, Entry* entry) {
  const std::uint64_t head_size = kLocalHeaderBytes + entry->name.size();
  if (!RangeFits(entry->header_at, head_size, limit)) {
    return range.Bad(fmt::format("record {} lies outside the archive", entry->name));
  }
  CKPT_ASSIGN_OR_RETURN(const Bytes head, range.Read(entry->header_at, head_size));
  if (LoadLe<std::uint32_t>(head.data()) != kLocalHeaderSignature) {
    return range.Bad(fmt::format("record {} has no local header", entry->name));
  }
  const auto disagree = [&] {
    return range.Bad(
        fmt::format("local header and central directory disagree about record {}", entry->name));
  };
  if (LoadLe<std::uint16_t>(&head[26]) != entry->name.size() ||
      AsText(ByteSpan(head).subspan(kLocalHeaderBytes)) != entry->name ||
      LoadLe<std::uint16_t>(&head[8]) != entry->method ||
      (LoadLe<std::uint16_t>(&head[6]) & kFlagsEncrypted) != 0) {
    return disagree();
  }
  entry->payload_at = entry->header_at + head_size + LoadLe<std::uint16_t>(&head[28]);
  if (!RangeFits(entry->payload_at, entry->size, limit)) {
    return range.Bad(fmt::format("record {} lies outside the archive", entry->name))
        .Actual(fmt::format("{} bytes at {}", entry->size, entry->payload_at));
  }
  return LocalSizesAgree(head, *entry) ? OkStatus() : disagree();
}

Status CheckNoOverlap(const Range& range, std::span<const Entry> entries) {
  std::vector<const Entry*> order(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) order[i] = &entries[i];
  std::sort(order.begin(), order.end(),
            [](const Entry* a, const Entry* b) { return a->header_at < b->header_at; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->payload_at + order[i - 1]->size > order[i]->header_at) {
      return range.Bad(
          fmt::format("records {} and {} overlap", order[i - 1]->name, order[i]->name));
    }
  }
  return OkStatus();
}

bool LeavesFolder(std::string_view name) {
  if (name.starts_with('/') || name.find('\0') != std::string_view::npos) return true;
  for (std::size_t start = 0; start <= name.size();) {
    const std::size_t end = std::min(name.find('/', start), name.size());
    if (name.substr(start, end - start) == "..") return true;
    start = end + 1;
  }
  return false;
}

// torch's reader ignores the case of ASCII letters. It takes two names that differ only in case for
// one, and uses the first record.
std::string FoldCase(std::string_view name) {
  std::string folded(name);
  for (char& c : folded) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return folded;
}

}  // namespace

Status TorchScriptError(std::string_view archive) {
  return Error(ErrorKind::kUnsupported, "a TorchScript archive, not a torch.save file")
      .File(archive)
      .Hint("save the module's state_dict() with torch.save");
}

Status ExportArchiveError(std::string_view archive) {
  return Error(ErrorKind::kUnsupported, "a torch.export archive (.pt2), not a torch.save file")
      .File(archive)
      .Hint("save the program's state_dict with torch.save");
}

Result<Archive> Archive::Open(std::shared_ptr<const ReadableFile> file, std::uint64_t offset,
                              std::uint64_t length) {
  Range range(*file, offset, length);
  if (!RangeFits(offset, length, file->size_bytes())) {
    return Error(ErrorKind::kTruncated, "the file ends before its item")
        .File(range.Describe())
        .Actual(fmt::format("{} bytes", file->size_bytes()));
  }
  if (length == 0) return range.Bad("the item is empty");
  CKPT_RETURN_IF_ERROR(range.ReadEdges());
  const bool is_whole_file = offset == 0 && length == file->size_bytes();
  CKPT_ASSIGN_OR_RETURN(const Directory directory, LocateDirectory(range, is_whole_file));
  CKPT_ASSIGN_OR_RETURN(const Bytes bytes, range.Read(directory.offset, directory.size));

  std::vector<Entry> entries;
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < directory.count; ++i) {
    CKPT_ASSIGN_OR_RETURN(Entry entry, ParseEntry(range, bytes, &at));
    CKPT_RETURN_IF_ERROR(ReadLocalHeader(range, directory.offset, &entry));
    entries.push_back(std::move(entry));
  }
  if (at != bytes.size()) return range.Bad("the central directory holds more than its entries");

  Archive archive(std::move(file));
  for (const Entry& entry : entries) {
    if (archive.prefix_.empty() && !LeavesFolder(entry.name)) {
      archive.prefix_ = entry.name.substr(0, entry.name.find('/') + 1);
    }
    if (archive.prefix_.empty() || !entry.name.starts_with(archive.prefix_) ||
        LeavesFolder(entry.name)) {
      Problem warning =
          Warning(ErrorKind::kUnsafePath,
                  "a record's name leaves the archive's folder; it is ignored", range.Describe());
      warning.expected = "a name below " + archive.prefix_;
      warning.actual = entry.name;
      archive.warnings_.push_back(std::move(warning));
      continue;
    }
    Record record = {.name = entry.name.substr(archive.prefix_.size()),
                     .offset_bytes = offset + entry.payload_at,
                     .size_bytes = entry.size,
                     .crc32 = entry.crc32};
    if (!archive.by_name_.emplace(FoldCase(record.name), archive.records_.size()).second) {
      return range.Bad(fmt::format("record name occurs twice: {}", entry.name));
    }
    if (record.crc32 != 0) archive.has_checksums_ = true;
    archive.records_.push_back(std::move(record));
  }
  CKPT_RETURN_IF_ERROR(CheckNoOverlap(range, entries));
  return archive;
}

const Record* Archive::Find(std::string_view name) const {
  const auto it = by_name_.find(FoldCase(name));
  return it == by_name_.end() ? nullptr : &records_[it->second];
}

Result<Bytes> Archive::Read(const Record& record, std::uint64_t max_bytes) const {
  const auto where = [&] {
    return DescribeRange(file_->name(), record.offset_bytes, record.size_bytes);
  };
  if (record.size_bytes > max_bytes) {
    return Error(ErrorKind::kResource, fmt::format("record {} is too large", record.name))
        .File(where())
        .Expected("at most " + FormatByteSize(max_bytes));
  }
  Bytes bytes(record.size_bytes);
  CKPT_RETURN_IF_ERROR(file_->ReadAt(record.offset_bytes, bytes));
  if (const std::uint32_t actual = Crc32(bytes); has_checksums_ && actual != record.crc32) {
    return Error(ErrorKind::kChecksum,
                 fmt::format("CRC-32 of record {}{} differs", prefix_, record.name))
        .File(where())
        .Expected(Hex32(record.crc32))
        .Actual(Hex32(actual));
  }
  return bytes;
}

Status Archive::Verify(const Record& record) const {
  if (!has_checksums_) return OkStatus();
  return VerifyRangeCrc32(*file_, "record " + prefix_ + record.name, record.offset_bytes,
                          record.size_bytes, record.crc32);
}

}  // namespace ckpt::zip
