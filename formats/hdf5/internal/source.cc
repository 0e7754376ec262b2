#include "formats/hdf5/internal/source.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/once_per_key.h"
#include "core/base/units.h"
#include "core/io/file_cache.h"
#include "core/io/range_crc.h"
#include "core/manifest/manifest_text.h"
#include "formats/hdf5/internal/assemble.h"
#include "formats/hdf5/internal/held_numbers.h"
#include "formats/hdf5/internal/names.h"

namespace ckpt::hdf5 {
namespace {

constexpr std::uint64_t kMaxObjectBytes = 64 * kMiB;

// Thread-safety: const methods may run concurrently.
class Source final : public CheckpointSource {
 public:
  Source(DataFiles files, Assembled assembled)
      : assembled_(std::move(assembled)),
        files_([files = std::move(files)](const std::string& name) { return files.Open(name); }) {}

  [[nodiscard]] const CheckpointIndex& index() const override { return assembled_.index; }

  [[nodiscard]] EntryPaths Paths() const override { return assembled_.paths; }

  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override {
    Result<StoredArray> array = LocatePiece(tensor, chunk);
    if (!array.ok()) return array;
    const PieceForm& form = FormOf(chunk);
    if (form.coding != Coding::kRaw) return array;
    Status verified = VerifyOnce(*array->file, form.checksum);
    if (!verified.ok()) return std::move(verified).Tensor(tensor.key);
    return array;
  }

  Result<StoredArray> LocateToStream(const GlobalTensor& tensor,
                                     const Chunk& chunk) const override {
    const PieceForm& form = FormOf(chunk);
    // Pieces may lie over each other, and then not all of each is read.
    const bool is_whole = form.coding == Coding::kRaw && form.checksum != nullptr &&
                          form.checksum->size_bytes == chunk.size_bytes &&
                          index().chunks(tensor).size() == 1;
    if (!is_whole) return Locate(tensor, chunk);
    Result<StoredArray> array = LocatePiece(tensor, chunk);
    if (!array.ok()) return array;
    array->file = CheckCrc32InOrder(std::move(array->file), "a data set", chunk.offset_bytes,
                                    chunk.size_bytes, form.checksum->crc32);
    return array;
  }

  Result<RenderedObject> ReadObject(const ObjectEntry& entry) const override {
    const auto found = assembled_.objects.find(entry.key);
    if (found == assembled_.objects.end()) {
      return Error(ErrorKind::kNotFound, "the file has no such object").Tensor(entry.key);
    }
    const auto read = [&]() -> Result<RenderedObject> {
      Attribute attribute = found->second.attribute;
      CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file, OpenFile(entry.file));
      if (entry.size_bytes > kMaxObjectBytes) {
        return Error(ErrorKind::kResource, "the object is too large to show").File(file->name());
      }
      CKPT_RETURN_IF_ERROR(VerifyOnce(*file, found->second.checksum));
      CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<StructureFile> structure,
                            StructureFile::Open(file));
      CKPT_ASSIGN_OR_RETURN(attribute.value, structure->Read(attribute.at, entry.size_bytes));
      if (found->second.json_type.empty()) return Render(*structure, attribute);
      RenderedObject object{.type = found->second.json_type,
                            .json = std::string(AsText(attribute.value)),
                            .warnings = {}};
      if (!found->second.numbers.empty()) {
        CKPT_ASSIGN_OR_RETURN(object.numbers, ParseNumbers(found->second.numbers));
      }
      return object;
    };
    Result<RenderedObject> rendered = read();
    if (!rendered.ok()) return std::move(rendered).status().Tensor(entry.key);
    return rendered;
  }

  Result<std::uint64_t> FileSize(FileId file) const override {
    CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> opened, OpenFile(file));
    return opened->size_bytes();
  }

  // kCrc32 if the elements of all tensors and the values of all objects have one.
  [[nodiscard]] Protection protection() const override {
    bool has_any = false;
    for (const PieceForm& form : assembled_.forms) {
      if (form.coding == Coding::kFill) continue;  // has no bytes
      if (form.checksum == nullptr) return Protection::kNone;
      has_any = true;
    }
    for (const auto& [key, object] : assembled_.objects) {
      if (object.checksum == nullptr) return Protection::kNone;
      has_any = true;
    }
    return has_any ? Protection::kCrc32 : Protection::kNone;
  }

  Status VerifyRest() const override {
    if (assembled_.origin_checksum == nullptr) return OkStatus();
    CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file, OpenFile(0));
    return VerifyOnce(*file, assembled_.origin_checksum);
  }

  [[nodiscard]] std::optional<std::uint32_t> StatedCrc32(const Chunk& chunk) const {
    const StoredCrc32* const checksum = FormOf(chunk).checksum.get();
    return checksum == nullptr ? std::nullopt : std::optional(checksum->crc32);
  }

  Result<std::shared_ptr<const Manifest>> ReadOrigin() const {
    const Segment& origin = assembled_.origin;
    if (origin.size_bytes == 0) return std::shared_ptr<const Manifest>();
    CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file, OpenFile(0));
    CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<StructureFile> structure,
                          StructureFile::Open(file));
    CKPT_RETURN_IF_ERROR(VerifyOnce(*file, assembled_.origin_checksum));
    CKPT_ASSIGN_OR_RETURN(const Bytes text,
                          structure->Read(origin.offset_bytes, origin.size_bytes));
    CKPT_ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(AsText(text), file->name()));
    return std::make_shared<const Manifest>(std::move(manifest));
  }

 private:
  [[nodiscard]] const PieceForm& FormOf(const Chunk& chunk) const {
    return assembled_.forms[static_cast<std::size_t>(&chunk - index().chunks().data())];
  }

  Result<std::shared_ptr<const ReadableFile>> OpenFile(FileId file) const {
    return files_.Open(index().files()[file]);
  }

  // Compares all bytes of a data set with its checksum, if it has one.
  Status VerifyOnce(const ReadableFile& file,
                    const std::shared_ptr<const StoredCrc32>& checksum) const {
    if (checksum == nullptr) return OkStatus();
    return verified_.Run(checksum, [&] {
      return VerifyRangeCrc32(file, "a data set", checksum->offset_bytes, checksum->size_bytes,
                              checksum->crc32);
    });
  }

  // Bytes that lie in the file as they are have not been compared with their checksum.
  Result<StoredArray> LocatePiece(const GlobalTensor& tensor, const Chunk& chunk) const {
    CKPT_RETURN_IF_ERROR(index().CheckDeliverable(tensor.key));
    Result<StoredArray> array = FindElements(tensor, chunk);
    if (!array.ok()) return std::move(array).status().Tensor(tensor.key);
    return array;
  }

  Result<StoredArray> FindElements(const GlobalTensor& tensor, const Chunk& chunk) const {
    const PieceForm& form = FormOf(chunk);
    StoredArray array{.file = nullptr,
                      .offset_bytes = chunk.offset_bytes,
                      .dtype = tensor.dtype,
                      .strides = form.strides,
                      .byte_swapped = form.byte_swapped};
    if (form.coding == Coding::kFill) {
      array.file = form.fill;
      array.offset_bytes = 0;
      return array;
    }
    CKPT_ASSIGN_OR_RETURN(array.file, OpenFile(chunk.file));
    if (!RangeFits(chunk.offset_bytes, chunk.size_bytes, array.file->size_bytes())) {
      return Error(ErrorKind::kTruncated, "the elements lie outside their file")
          .File(DescribeRange(array.file->name(), chunk.offset_bytes, chunk.size_bytes))
          .Actual(fmt::format("{} bytes in the file", array.file->size_bytes()));
    }
    if (form.coding == Coding::kRaw) return array;
    const std::uint64_t element_bytes = ElementBytes(tensor.dtype);
    CKPT_ASSIGN_OR_RETURN(Bytes decoded, Decode(*array.file, chunk, form, element_bytes));
    const std::string name = array.file->name();
    array.file = MakeMemoryFile(name, std::move(decoded));
    array.offset_bytes = form.first * element_bytes;
    array.resident_bytes = form.decoded_bytes;
    return array;
  }

  static Result<Bytes> Decode(const ReadableFile& file, const Chunk& chunk, const PieceForm& form,
                              std::uint64_t element_bytes) {
    Bytes stored(chunk.size_bytes);
    CKPT_RETURN_IF_ERROR(file.ReadAt(chunk.offset_bytes, stored));
    Result<Bytes> decoded =
        UndoFilters(std::move(stored), *form.filterings, form.decoded_bytes, element_bytes);
    if (decoded.ok()) return decoded;
    return std::move(decoded).status().File(
        DescribeRange(file.name(), chunk.offset_bytes, chunk.size_bytes));
  }

  Assembled assembled_;
  mutable FileCache files_;
  mutable OncePerKey<std::shared_ptr<const StoredCrc32>> verified_;
};

}  // namespace

Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  const bool is_directory = stat.type == FileType::kDirectory;
  const Path hdf5_file = is_directory ? path / std::string(kFileInDirectory) : path;
  DataFiles files(storage, hdf5_file);
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, storage.Open(hdf5_file));
  CKPT_ASSIGN_OR_RETURN(Assembled assembled, Assemble(files, std::move(file)));
  return std::unique_ptr<CheckpointSource>(
      std::make_unique<Source>(std::move(files), std::move(assembled)));
}

Result<std::shared_ptr<const Manifest>> ReadOwnManifest(const CheckpointSource& source) {
  const auto* const own = dynamic_cast<const Source*>(&source);
  return own == nullptr ? std::shared_ptr<const Manifest>() : own->ReadOrigin();
}

std::optional<std::uint32_t> StatedCrc32(const CheckpointSource& source, const Chunk& chunk) {
  return dynamic_cast<const Source&>(source).StatedCrc32(chunk);
}

}  // namespace ckpt::hdf5
