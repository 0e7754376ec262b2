#include "formats/torch_save/torch_container.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/units.h"
#include "core/io/git_lfs_pointer.h"
#include "core/io/range_crc.h"
#include "formats/torch_save/internal/archive_records.h"
#include "formats/torch_save/internal/legacy_stream.h"
#include "formats/torch_save/internal/whole_paths.h"
#include "formats/zip/reader.h"

namespace ckpt::torch_save {
namespace {

using namespace std::string_view_literals;

constexpr std::uint64_t kMaxPickleBytes = kGiB;
constexpr std::uint64_t kMaxOwnRecordBytes = 256 * kMiB;
constexpr std::uint64_t kMaxSmallRecordBytes = 64;
// Of torch.export.save since torch 2.7.
constexpr std::string_view kExportRecord = "archive_format";
constexpr std::string_view kStoragePrefix = "data/";

// "little" unless the record says otherwise; writers before torch 2.0 wrote none.
Result<bool> IsBigEndian(const zip::Archive& zip) {
  const zip::Record* record = zip.Find("byteorder");
  if (record == nullptr) return false;
  CKPT_ASSIGN_OR_RETURN(const Bytes text, zip.Read(*record, kMaxSmallRecordBytes));
  if (AsText(text) == "little") return false;
  if (AsText(text) == "big") return true;
  return Error(ErrorKind::kBadItem, "unknown byte order")
      .Expected("little or big")
      .Actual(AsText(text));
}

// numpy's .npz: its records, which mostly lie in no folder, are arrays.
bool HoldsNumpyArrays(const zip::Archive& zip) {
  const auto is_array = [](std::string_view name) { return name.ends_with(".npy"); };
  return std::ranges::any_of(zip.records(), is_array, &zip::Record::name) ||
         std::ranges::any_of(zip.warnings(), is_array, &Problem::actual);
}

}  // namespace

Result<TorchContainer> OpenZipContainer(std::shared_ptr<const ReadableFile> file,
                                        std::uint64_t offset, std::uint64_t length) {
  const std::string where = DescribeRange(file->name(), offset, length);
  CKPT_ASSIGN_OR_RETURN(const zip::Archive zip, zip::Archive::Open(file, offset, length));
  if (zip.Find("constants.pkl") != nullptr) return zip::TorchScriptError(where);
  if (zip.Find(kExportRecord) != nullptr) return zip::ExportArchiveError(where);
  const zip::Record* pickle = zip.Find("data.pkl");
  if (pickle == nullptr && HoldsNumpyArrays(zip)) {
    return Error(ErrorKind::kUnsupported, "a numpy archive (.npz), not a torch.save file")
        .File(where);
  }
  if (pickle == nullptr) {
    return Error(ErrorKind::kIncomplete, "no data.pkl: an aborted torch.save").File(where);
  }
  TorchContainer container;
  Result<bool> is_big_endian = IsBigEndian(zip);
  if (!is_big_endian.ok()) return std::move(is_big_endian).status().File(where);
  container.is_big_endian = *is_big_endian;
  CKPT_ASSIGN_OR_RETURN(const Bytes bytes, zip.Read(*pickle, kMaxPickleBytes));
  CKPT_ASSIGN_OR_RETURN(container.pickle, pickle::ParsePickle(bytes, where));
  for (const zip::Record& record : zip.records()) {
    if (!record.name.starts_with(kStoragePrefix)) continue;
    container.storages.emplace(
        record.name.substr(kStoragePrefix.size()),
        StorageExtent{.name = zip.prefix() + record.name,
                      .offset_bytes = record.offset_bytes,
                      .size_bytes = record.size_bytes,
                      .crc32 = zip.has_checksums() ? std::optional(record.crc32) : std::nullopt});
  }
  if (const zip::Record* whole = zip.Find(kWholeRecord)) {
    CKPT_ASSIGN_OR_RETURN(const Bytes text, zip.Read(*whole, kMaxOwnRecordBytes));
    Result<std::vector<EntryPath>> paths = ParseWholePaths(AsText(text), where);
    if (!paths.ok()) return std::move(paths).status().File(where);
    container.whole = *std::move(paths);
  }
  if (const zip::Record* origin = zip.Find(kOriginRecord)) {
    CKPT_ASSIGN_OR_RETURN(const Bytes text, zip.Read(*origin, kMaxOwnRecordBytes));
    container.origin = AsText(text);
  }
  container.file = std::move(file);
  container.warnings = zip.warnings();
  return container;
}

Result<TorchContainer> OpenTorchFile(std::shared_ptr<const ReadableFile> file) {
  const std::string name = file->name();
  if (file->size_bytes() == 0) return Error(ErrorKind::kTruncated, "the file is empty").File(name);
  CKPT_RETURN_IF_ERROR(RefuseGitLfsPointer(*file));
  constexpr std::size_t kTarMagicAt = 257;
  std::array<std::byte, kTarMagicAt + 5> buffer{};
  const MutableByteSpan head =
      MutableByteSpan(buffer).first(std::min<std::uint64_t>(buffer.size(), file->size_bytes()));
  CKPT_RETURN_IF_ERROR(file->ReadAt(0, head));
  const std::string_view start = AsText(head);

  if (start.starts_with("PK\x03\x04"sv)) {
    const std::uint64_t size = file->size_bytes();
    return OpenZipContainer(std::move(file), 0, size);
  }
  if (LegacyMagicBytes(start) != 0) return OpenLegacyStream(std::move(file));
  if (start.size() == buffer.size() && start.substr(kTarMagicAt) == "ustar"sv) {
    return Error(ErrorKind::kUnsupported, "a tar archive, as torch.save wrote before 0.1.10")
        .File(name)
        .Hint("load and save it again with a torch that reads it");
  }
  if (start.starts_with('\x80')) {
    return Error(ErrorKind::kUnsupported, "a plain pickle, not a torch.save file").File(name);
  }
  return Error(ErrorKind::kUnsupported, "not a torch.save file").File(name);
}

Status VerifyStorage(const TorchContainer& container, const StorageExtent& storage) {
  if (!storage.crc32) return OkStatus();
  return VerifyRangeCrc32(*container.file, "record " + storage.name, storage.offset_bytes,
                          storage.size_bytes, *storage.crc32);
}

}  // namespace ckpt::torch_save
