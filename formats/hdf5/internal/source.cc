#include "formats/hdf5/internal/source.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/once_per_key.h"
#include "core/base/units.h"
#include "core/io/file_cache.h"
#include "core/io/range_crc.h"
#include "core/manifest/manifest_text.h"
#include "formats/hdf5/internal/assemble.h"
#include "formats/hdf5/internal/held_numbers.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/piece_bytes.h"

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
    Result<RenderedObject> rendered = RenderStored(entry, found->second);
    if (!rendered.ok()) return std::move(rendered).status().Tensor(entry.key);
    return rendered;
  }

  Result<std::uint64_t> FileSize(FileId file) const override {
    CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> opened, OpenFile(file));
    return opened->size_bytes();
  }

  // kCrc32 if a byte of a tensor or an object is compared with a checksum: a CRC-32, or what the
  // filters of a chunk compare, for which there is no other word.
  [[nodiscard]] Protection protection() const override {
    const auto is_compared = [&](const auto& item) {
      return item.size_bytes != 0 && HasChecksum(item);
    };
    const bool has_any = std::ranges::any_of(index().chunks(), is_compared) ||
                         std::ranges::any_of(index().objects(), is_compared);
    return has_any ? Protection::kCrc32 : Protection::kNone;
  }

  // Locate compares the stored bytes with a checksum.
  [[nodiscard]] bool HasChecksum(const Chunk& chunk) const override {
    return IsCompared(chunk.file, chunk.offset_bytes, chunk.size_bytes, FormOf(chunk));
  }

  // ReadObject does, or opening the file did with the header that holds an attribute. A text of any
  // length lies in a heap, which has no checksum.
  [[nodiscard]] bool HasChecksum(const ObjectEntry& entry) const override {
    const auto found = assembled_.objects.find(entry.key);
    if (found == assembled_.objects.end()) return false;
    const StoredObject& object = found->second;
    if (object.checksum != nullptr) return true;
    if (object.attribute.type.kind == TypeKind::kLongText) return false;
    if (object.pieces.empty()) return object.attribute.has_checksum;
    return std::ranges::all_of(object.pieces, [&](const Piece& piece) {
      return IsCompared(entry.file, piece.offset_bytes, piece.size_bytes, piece.form);
    });
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

  [[nodiscard]] bool IsCompared(FileId file, std::uint64_t offset_bytes, std::uint64_t size_bytes,
                                const PieceForm& form) const {
    if (form.coding == Coding::kFill) return true;  // has no bytes
    if (form.coding == Coding::kRaw) return form.checksum != nullptr;
    const Result<std::shared_ptr<const ReadableFile>> opened = OpenFile(file);
    return opened.ok() && ChunkHasChecksum(**opened, offset_bytes, size_bytes, form);
  }

  Result<RenderedObject> RenderStored(const ObjectEntry& entry, const StoredObject& object) const {
    CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file, OpenFile(entry.file));
    CKPT_RETURN_IF_ERROR(VerifyOnce(*file, object.checksum));
    CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<StructureFile> structure,
                          StructureFile::Open(file));
    Attribute attribute = object.attribute;
    CKPT_ASSIGN_OR_RETURN(attribute.value, ReadValue(*structure, entry, object));
    if (object.json_type.empty()) return Render(*structure, attribute);
    RenderedObject rendered{
        .type = object.json_type, .json = std::string(AsText(attribute.value)), .warnings = {}};
    if (!object.numbers.empty()) {
      CKPT_ASSIGN_OR_RETURN(rendered.numbers, ParseNumbers(object.numbers));
    }
    return rendered;
  }

  static Result<Bytes> ReadValue(StructureFile& structure, const ObjectEntry& entry,
                                 const StoredObject& object) {
    const Attribute& attribute = object.attribute;
    if (!object.pieces.empty()) {
      return GatherElements(structure.file(), object.pieces, attribute.space.shape,
                            attribute.type.size_bytes, kMaxObjectBytes);
    }
    if (entry.size_bytes > kMaxObjectBytes) {
      return Error(ErrorKind::kResource, "the object is too large to show")
          .File(structure.file().name());
    }
    return structure.Read(attribute.at, entry.size_bytes);
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
    CKPT_RETURN_IF_ERROR(CheckInFile(*array.file, chunk.offset_bytes, chunk.size_bytes));
    if (form.coding == Coding::kRaw) return array;
    const std::uint64_t element_bytes = ElementBytes(tensor.dtype);
    CKPT_ASSIGN_OR_RETURN(Bytes decoded, DecodeChunk(*array.file, chunk.offset_bytes,
                                                     chunk.size_bytes, form, element_bytes));
    const std::string name = array.file->name();
    array.file = MakeMemoryFile(name, std::move(decoded));
    array.offset_bytes = form.first * element_bytes;
    array.resident_bytes = form.decoded_bytes;
    return array;
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
