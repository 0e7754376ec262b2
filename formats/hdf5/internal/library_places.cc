#include "formats/hdf5/internal/library_places.h"

#include <cstddef>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <hdf5.h>

#include "core/base/hash.h"
#include "core/base/quote.h"
#include "core/tensor/box.h"
#include "formats/hdf5/internal/format_numbers.h"
#include "formats/hdf5/internal/library_contents.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/source.h"

namespace ckpt::hdf5 {
namespace {

// A text of a length that `get(buffer, size)` answers.
template <typename Get>
std::string TextBy(const Get& get) {
  const ssize_t length = get(nullptr, 0);
  if (length < 0) return {};
  std::string text(static_cast<std::size_t>(length) + 1, '\0');
  get(text.data(), text.size());
  text.pop_back();
  return text;
}

// What a selection covers. Ours are one box, or everything.
Result<Box> BoxOf(const LibraryFile& file, const Handle& space, const Dims& shape) {
  if (H5Sget_select_type(space.id()) == H5S_SEL_ALL) return WholeBox(shape);
  std::vector<hsize_t> start(shape.size());
  std::vector<hsize_t> end(shape.size());
  const bool is_box = H5Sget_simple_extent_ndims(space.id()) == static_cast<int>(shape.size()) &&
                      H5Sget_select_bounds(space.id(), start.data(), end.data()) >= 0;
  Box box;
  hssize_t count = is_box ? 1 : -1;
  for (std::size_t d = 0; is_box && d < shape.size(); ++d) {
    box.offsets.push_back(static_cast<std::int64_t>(start[d]));
    box.sizes.push_back(static_cast<std::int64_t>(end[d] - start[d] + 1));
    count *= box.sizes.back();
  }
  if (count == H5Sget_select_npoints(space.id())) return box;
  return LibraryFinds(ErrorKind::kValueMismatch, file, "a virtual data set of something but boxes");
}

}  // namespace

std::string Describe(const Place& place) {
  return fmt::format("{} in {}, {}, {}", FormatBox(Box{place.offsets, place.sizes}),
                     DescribeRange(place.file, place.offset_bytes, place.size_bytes), place.coding,
                     place.crc32 ? "CRC-32 " + Hex32(*place.crc32) : "no checksum");
}

std::vector<Place> PlacesOf(const CheckpointSource& source, const GlobalTensor& tensor) {
  const CheckpointIndex& index = source.index();
  std::vector<Place> places;
  for (const Chunk& chunk : index.chunks(tensor)) {
    Box box = index.box(chunk);
    places.push_back({.offsets = std::move(box.offsets),
                      .sizes = std::move(box.sizes),
                      .file = std::string(index.files()[chunk.file]),
                      .offset_bytes = chunk.offset_bytes,
                      .size_bytes = chunk.size_bytes,
                      .coding = index.encoding(chunk),
                      .crc32 = StatedCrc32(source, chunk)});
  }
  return places;
}

Result<LibraryFile*> PlaceFinder::Open(const std::string& name) {
  auto [opened, is_new] = opened_.try_emplace(name);
  if (is_new) {
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, files_.Open(name));
    CKPT_ASSIGN_OR_RETURN(opened->second, LibraryFile::Open(std::move(file)));
  }
  return opened->second.get();
}

Result<std::vector<Place>> PlaceFinder::Find(LibraryFile& file, const Handle& set,
                                             const TargetTensor& tensor) {
  std::vector<Place> places;
  const Handle storage(H5Dget_create_plist(set.id()));
  switch (H5Pget_layout(storage.id())) {
    case H5D_CONTIGUOUS:
      CKPT_RETURN_IF_ERROR(FindSegments(file, set, storage, tensor.shape, places));
      return places;
    case H5D_CHUNKED:
      CKPT_RETURN_IF_ERROR(FindChunks(file, set, storage, tensor, places));
      return places;
    case H5D_VIRTUAL:
      CKPT_RETURN_IF_ERROR(FindShown(file, storage, tensor, places));
      return places;
    default:
      return LibraryFinds(ErrorKind::kValueMismatch, file, "a storage layout that we do not write");
  }
}

Status PlaceFinder::FindSegments(const LibraryFile& file, const Handle& set, const Handle& storage,
                                 const Dims& shape, std::vector<Place>& places) const {
  Place place{.offsets = Dims(shape.size()), .sizes = shape, .file = {}, .coding = "raw"};
  const int count = H5Pget_external_count(storage.id());
  if (count < 0) return file.Fail("the HDF5 library cannot count external files");
  if (count == 0) {
    place.file = Path(file.name()).filename().string();
    place.offset_bytes = H5Dget_offset(set.id());
    place.size_bytes = H5Dget_storage_size(set.id());
    if (place.size_bytes == 0) return OkStatus();
    CKPT_ASSIGN_OR_RETURN(place.crc32, ReadCrc32(file, set));
    if (needs_checksums_ && !place.crc32) {
      return LibraryFinds(ErrorKind::kMissing, file, "no attribute").Expected(kCrc32Attribute);
    }
    places.push_back(std::move(place));
    return OkStatus();
  }
  const Handle type(H5Dget_type(set.id()));
  std::uint64_t row_bytes = H5Tget_size(type.id());
  for (std::size_t d = 1; d < shape.size(); ++d) row_bytes *= static_cast<std::uint64_t>(shape[d]);
  for (int i = 0; i < count; ++i) {
    constexpr std::size_t kMaxName = 4096;
    std::string name(kMaxName + 1, '\0');
    off_t offset = 0;
    hsize_t size = 0;
    if (H5Pget_external(storage.id(), static_cast<unsigned>(i), kMaxName, name.data(), &offset,
                        &size) < 0) {
      return file.Fail("the HDF5 library cannot name an external file");
    }
    name.resize(name.find('\0'));
    CKPT_ASSIGN_OR_RETURN(place.file, files_.Resolve(name));
    place.offset_bytes = static_cast<std::uint64_t>(offset);
    place.size_bytes = size;
    if (count > 1) place.sizes[0] = static_cast<std::int64_t>(size / row_bytes);
    places.push_back(place);
    if (count > 1) place.offsets[0] += place.sizes[0];
  }
  return OkStatus();
}

// Asks for the chunk at each place that the index has, and for how many there are.
Status PlaceFinder::FindChunks(const LibraryFile& file, const Handle& set, const Handle& storage,
                               const TargetTensor& tensor, std::vector<Place>& places) const {
  std::size_t num_values = 0;
  unsigned flags = 0;
  const bool is_zstd = H5Pget_nfilters(storage.id()) == 1 &&
                       H5Pget_filter2(storage.id(), 0, &flags, &num_values, nullptr, 0, nullptr,
                                      nullptr) == kZstdFilter;
  if (!is_zstd)
    return LibraryFinds(ErrorKind::kValueMismatch, file, "other filters than zstd (32015)");
  std::vector<hsize_t> dims(tensor.shape.size());
  const Handle space(H5Dget_space(set.id()));
  hsize_t count = 0;
  if (H5Pget_chunk(storage.id(), static_cast<int>(dims.size()), dims.data()) < 0 ||
      H5Dget_num_chunks(set.id(), space.id(), &count) < 0) {
    return file.Fail("the HDF5 library cannot count the chunks");
  }
  const GlobalTensor* const indexed = index_.FindTensor(tensor.key);
  if (indexed == nullptr || indexed->num_chunks != count) {
    return LibraryFinds(ErrorKind::kValueMismatch, file, "another number of chunks")
        .Expected(std::to_string(indexed == nullptr ? 0 : indexed->num_chunks))
        .Actual(std::to_string(count));
  }
  const Box whole = WholeBox(tensor.shape);
  for (const Chunk& chunk : index_.chunks(*indexed)) {
    const DimsView at = index_.offsets(chunk);
    const std::vector<hsize_t> offsets(at.begin(), at.end());
    unsigned skipped_filters = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t size = 0;
    if (H5Dget_chunk_info_by_coord(set.id(), offsets.data(), &skipped_filters, &address, &size) <
        0) {
      return file.Fail("the HDF5 library cannot find a chunk");
    }
    if (address == HADDR_UNDEF) continue;  // found missing by the comparison
    const Box box{.offsets = Dims(at.begin(), at.end()), .sizes = Dims(dims.begin(), dims.end())};
    const auto inside = Intersect(box, whole);
    places.push_back({.offsets = box.offsets,
                      .sizes = inside ? inside->sizes : box.sizes,
                      .file = Path(file.name()).filename().string(),
                      .offset_bytes = address,
                      .size_bytes = size,
                      .coding = skipped_filters == 0 ? "zstd" : "raw"});
  }
  return OkStatus();
}

Status PlaceFinder::FindShown(LibraryFile& file, const Handle& storage, const TargetTensor& tensor,
                              std::vector<Place>& places) {
  std::size_t count = 0;
  if (H5Pget_virtual_count(storage.id(), &count) < 0) {
    return file.Fail("the HDF5 library cannot count the parts of a virtual data set");
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::optional<std::string> name = NameOfSource(TextBy([&](char* text, std::size_t size) {
      return H5Pget_virtual_filename(storage.id(), i, text, size);
    }));
    const std::optional<std::string> path = NameOfSource(TextBy([&](char* text, std::size_t size) {
      return H5Pget_virtual_dsetname(storage.id(), i, text, size);
    }));
    const Handle shown_space(H5Pget_virtual_vspace(storage.id(), i));
    const Handle part_space(H5Pget_virtual_srcspace(storage.id(), i));
    if (!name || !path || !shown_space.ok() || !part_space.ok()) {
      return file.Fail("the HDF5 library cannot tell what a virtual data set shows");
    }
    CKPT_ASSIGN_OR_RETURN(LibraryFile* const part,
                          *name == "." ? Result<LibraryFile*>(&file) : Open(*name));
    CKPT_ASSIGN_OR_RETURN(const Handle set, OpenDataSet(*part, *path));
    shown_[part].insert(*path);
    CKPT_ASSIGN_OR_RETURN(const Box to, BoxOf(file, shown_space, tensor.shape));
    CKPT_RETURN_IF_ERROR(CheckElements(*part, set, tensor.dtype, to.sizes));
    CKPT_ASSIGN_OR_RETURN(const Box from, BoxOf(file, part_space, to.sizes));
    if (from != WholeBox(to.sizes)) {
      return LibraryFinds(ErrorKind::kValueMismatch, file,
                          "a virtual data set that shows half a piece")
          .Expected(FormatBox(WholeBox(to.sizes)))
          .Actual(FormatBox(from));
    }
    std::vector<Place> stored;
    CKPT_RETURN_IF_ERROR(FindStored(*part, set, to.sizes, stored));
    for (Place& place : stored) {
      for (std::size_t d = 0; d < to.offsets.size(); ++d) place.offsets[d] += to.offsets[d];
      places.push_back(std::move(place));
    }
  }
  return OkStatus();
}

// Of a piece that a virtual data set shows.
Status PlaceFinder::FindStored(const LibraryFile& file, const Handle& set, const Dims& shape,
                               std::vector<Place>& places) const {
  const Handle storage(H5Dget_create_plist(set.id()));
  if (H5Pget_layout(storage.id()) == H5D_CONTIGUOUS) {
    return FindSegments(file, set, storage, shape, places);
  }
  return LibraryFinds(ErrorKind::kValueMismatch, file, "a piece that is not stored in one range");
}

Status PlaceFinder::CheckAllShown() const {
  for (const auto& [name, file] : opened_) CKPT_RETURN_IF_ERROR(CheckAllShown(*file));
  return OkStatus();
}

Status PlaceFinder::CheckAllShown(const LibraryFile& file) const {
  CKPT_ASSIGN_OR_RETURN(const std::set<std::string> pieces,
                        LinksOf(file, fmt::format("/{}", kChunksGroup)));
  const auto shown = shown_.find(&file);
  for (const std::string& piece : pieces) {
    const std::string path = fmt::format("/{}/{}", kChunksGroup, piece);
    if (shown == shown_.end() || !shown->second.contains(path)) {
      return LibraryFinds(ErrorKind::kValueMismatch, file, "a piece that no tensor shows")
          .Actual(Quote(path));
    }
  }
  return OkStatus();
}

}  // namespace ckpt::hdf5
