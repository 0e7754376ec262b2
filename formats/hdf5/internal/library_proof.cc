#include "formats/hdf5/internal/library_proof.h"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <hdf5.h>

#include "core/base/hash.h"
#include "core/base/quote.h"
#include "core/base/thrown.h"
#include "core/io/range_crc.h"
#include "formats/hdf5/internal/held_path.h"
#include "formats/hdf5/internal/library.h"
#include "formats/hdf5/internal/library_type.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/pieces.h"
#include "formats/hdf5/internal/source.h"

namespace ckpt::hdf5 {
namespace {

constexpr H5Z_filter_t kZstdFilter = 32015;

// A stored box of a tensor. Ordered and compared as a whole.
struct Place {
  Dims offsets;
  Dims sizes;
  std::string file;  // relative to the directory of the first file
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  std::string coding;
  std::optional<std::uint32_t> crc32 = {};  // of all bytes of the data set

  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const Place&, const Place&) = default;
};

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

// Names that one of the library's iterations gives, in order of their bytes.
template <typename Info>
herr_t AddName(hid_t /*in*/, const char* name, const Info* /*info*/, void* names) {
  const Status added = StatusOfCall([&] {
    static_cast<std::set<std::string>*>(names)->insert(name);
    return OkStatus();
  });
  return added.ok() ? 0 : -1;  // nothing may throw through the library
}

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

class Prover {
 public:
  Prover(Storage& storage, const Path& path, const CheckpointSource& strict)
      : files_(storage, path), strict_(strict), index_(strict.index()), paths_(strict.Paths()) {}

  Status Prove(const WritePlan& plan) {
    has_checksums_ = plan.late_bytes && plan.late_bytes->uses_crc32;
    CKPT_ASSIGN_OR_RETURN(main_, Open(files_.own_name()));
    CKPT_RETURN_IF_ERROR(CheckRoot());
    CKPT_RETURN_IF_ERROR(CheckTensors(TensorsOf(plan)));
    CKPT_RETURN_IF_ERROR(CheckObjects());
    for (std::size_t f = 1; f < plan.files.size(); ++f) {
      CKPT_RETURN_IF_ERROR(Open(plan.files[f].name).status());
    }
    // Pieces that no tensor shows would be elements that went astray.
    for (const auto& [name, file] : opened_) CKPT_RETURN_IF_ERROR(CheckAllShown(*file));
    return OkStatus();
  }

 private:
  [[nodiscard]] std::vector<TargetTensor> TensorsOf(const WritePlan& plan) const {
    std::vector<TargetTensor> tensors = plan.tensors;
    if (!tensors.empty()) {
      tensors.insert(tensors.end(), plan.known_tensors.begin(), plan.known_tensors.end());
      return tensors;
    }
    // A plan of links writes no tensors: then the strict reader says which ones there are.
    for (const GlobalTensor& tensor : index_.tensors()) {
      tensors.push_back({.key = tensor.key, .dtype = tensor.dtype, .shape = tensor.shape});
    }
    return tensors;
  }

  Status Differs(ErrorKind kind, const LibraryFile& file, std::string_view what) const {
    return Error(kind, fmt::format("the HDF5 library finds {}", what)).File(file.name());
  }

  Result<LibraryFile*> Open(const std::string& name) {
    auto [opened, is_new] = opened_.try_emplace(name);
    if (is_new) {
      CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, files_.Open(name));
      CKPT_ASSIGN_OR_RETURN(opened->second, LibraryFile::Open(std::move(file)));
    }
    return opened->second.get();
  }

  // Of a group; nothing if the group is not there.
  static Result<std::set<std::string>> Links(const LibraryFile& file, const std::string& group) {
    std::set<std::string> names;
    if (group != "/" && H5Lexists(file.id(), group.c_str(), H5P_DEFAULT) == 0) return names;
    const Handle opened(H5Gopen2(file.id(), group.c_str(), H5P_DEFAULT));
    if (!opened.ok() || H5Literate(opened.id(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr,
                                   &AddName<H5L_info_t>, &names) < 0) {
      return file.Fail(fmt::format("the HDF5 library cannot list the group {}", group));
    }
    return names;
  }

  Status CheckRoot() {
    CKPT_ASSIGN_OR_RETURN(const std::set<std::string> names, Links(*main_, "/"));
    for (const std::string& name : names) {
      if (name != kTensorsGroup && name != kObjectsGroup && name != kChunksGroup &&
          name != kOriginName) {
        return Differs(ErrorKind::kValueMismatch, *main_, "an object that was not planned")
            .Actual(Quote(name));
      }
    }
    const Handle layout(H5Aopen(main_->id(), kLayoutAttribute, H5P_DEFAULT));
    std::int64_t version = 0;
    if (!layout.ok() || H5Aread(layout.id(), H5T_NATIVE_INT64, &version) < 0) {
      return main_->Fail(fmt::format("the HDF5 library cannot read {}", kLayoutAttribute));
    }
    if (version == kLayoutVersion) return OkStatus();
    return Differs(ErrorKind::kValueMismatch, *main_, "another layout")
        .Expected(std::to_string(kLayoutVersion))
        .Actual(std::to_string(version));
  }

  Status CheckTensors(const std::vector<TargetTensor>& tensors) {
    CKPT_ASSIGN_OR_RETURN(std::set<std::string> names,
                          Links(*main_, fmt::format("/{}", kTensorsGroup)));
    for (const TargetTensor& tensor : tensors) {
      if (names.erase(LinkNameOf(tensor.key)) == 0) {
        return Differs(ErrorKind::kMissing, *main_, "no data set of the tensor").Tensor(tensor.key);
      }
      CKPT_RETURN_IF_ERROR(CheckTensor(tensor).Tensor(tensor.key));
    }
    if (names.empty()) return OkStatus();
    return Differs(ErrorKind::kValueMismatch, *main_, "a tensor that was not planned")
        .Actual(Quote(*names.begin()));
  }

  Status CheckTensor(const TargetTensor& tensor) {
    CKPT_ASSIGN_OR_RETURN(
        const Handle set,
        OpenDataSet(*main_, fmt::format("/{}/{}", kTensorsGroup, LinkNameOf(tensor.key))));
    const bool has_bytes = H5Dget_offset(set.id()) != HADDR_UNDEF;
    CKPT_RETURN_IF_ERROR(CheckAttributes(
        set, tensor.key, {{kDtypeAttribute, std::string(DTypeName(tensor.dtype))}},
        has_bytes ? std::vector<std::string>{kCrc32Attribute} : std::vector<std::string>()));
    CKPT_RETURN_IF_ERROR(CheckElements(*main_, set, tensor.dtype, tensor.shape));
    std::vector<Place> found;
    CKPT_RETURN_IF_ERROR(FindPlaces(*main_, set, tensor, tensor.shape, found));
    const GlobalTensor* const indexed = index_.FindTensor(tensor.key);
    if (indexed == nullptr) {
      return Error(ErrorKind::kMissing, "the result lacks a tensor").File(main_->name());
    }
    std::vector<Place> expected = PlacesOf(strict_, *indexed);
    std::ranges::sort(found);
    std::ranges::sort(expected);
    const auto [e, f] = std::ranges::mismatch(expected, found);
    if (e == expected.end() && f == found.end()) return OkStatus();
    return Differs(ErrorKind::kValueMismatch, *main_, "elements in another place")
        .Expected(e == expected.end() ? "no further piece" : Describe(*e))
        .Actual(f == found.end() ? "no further piece" : Describe(*f));
  }

  static Result<Handle> OpenDataSet(const LibraryFile& file, const std::string& path) {
    Handle set(H5Dopen2(file.id(), path.c_str(), H5P_DEFAULT));
    if (!set.ok()) return file.Fail(fmt::format("the HDF5 library cannot open {}", Quote(path)));
    return set;
  }

  // `expected`: besides the key and its place.
  Status CheckAttributes(const Handle& set, const std::string& key,
                         std::map<std::string, std::string> expected,
                         const std::vector<std::string>& may_have) const {
    expected.emplace(kKeyAttribute, key);
    if (const auto path = paths_.find(key); path != paths_.end()) {
      expected.emplace(kPathAttribute, EncodePath(path->second));
    }
    std::set<std::string> names;
    if (H5Aiterate2(set.id(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, &AddName<H5A_info_t>,
                    &names) < 0) {
      return main_->Fail("the HDF5 library cannot list the attributes");
    }
    for (const auto& [name, value] : expected) {
      if (names.erase(name) == 0) {
        return Differs(ErrorKind::kMissing, *main_, "no attribute").Expected(name);
      }
      if (value.empty() && name == kTypeAttribute) continue;
      CKPT_ASSIGN_OR_RETURN(const std::string text, ReadText(set, name));
      if (text != value) {
        return Differs(ErrorKind::kValueMismatch, *main_, "another attribute " + name)
            .Expected(Quote(value))
            .Actual(Quote(text));
      }
    }
    for (const std::string& name : may_have) names.erase(name);
    if (names.empty()) return OkStatus();
    return Differs(ErrorKind::kValueMismatch, *main_, "an attribute that was not planned")
        .Actual(Quote(*names.begin()));
  }

  Result<std::string> ReadText(const Handle& set, const std::string& name) const {
    const auto fail = [&] {
      return main_->Fail(fmt::format("the HDF5 library cannot read the attribute {}", name));
    };
    const Handle attribute(H5Aopen(set.id(), name.c_str(), H5P_DEFAULT));
    if (!attribute.ok()) return fail();
    const Handle type(H5Aget_type(attribute.id()));
    if (H5Tget_class(type.id()) != H5T_STRING) {
      return Differs(ErrorKind::kDtypeMismatch, *main_, "an attribute that is no text: " + name);
    }
    if (H5Tis_variable_str(type.id()) > 0) {
      char* text = nullptr;
      if (H5Aread(attribute.id(), type.id(), &text) < 0) return fail();
      std::string copy = text == nullptr ? "" : text;
      H5free_memory(text);
      return copy;
    }
    std::string text(H5Tget_size(type.id()), '\0');
    if (H5Aread(attribute.id(), type.id(), text.data()) < 0) return fail();
    return text;
  }

  // What a data set with bytes of its own says of them.
  Result<std::optional<std::uint32_t>> ReadCrc32(const LibraryFile& file, const Handle& set) const {
    if (H5Aexists(set.id(), kCrc32Attribute) <= 0) return std::optional<std::uint32_t>();
    const Handle attribute(H5Aopen(set.id(), kCrc32Attribute, H5P_DEFAULT));
    const Handle type(H5Aget_type(attribute.id()));
    const Handle space(H5Aget_space(attribute.id()));
    if (H5Tequal(type.id(), H5T_STD_U32LE) <= 0 ||
        H5Sget_simple_extent_type(space.id()) != H5S_SCALAR) {
      return Differs(ErrorKind::kDtypeMismatch, file,
                     "an attribute crc32 that is not one unsigned number of 32 bits");
    }
    std::uint32_t crc32 = 0;
    if (H5Aread(attribute.id(), H5T_NATIVE_UINT32, &crc32) < 0) {
      return file.Fail("the HDF5 library cannot read the attribute crc32");
    }
    return std::optional(crc32);
  }

  Status CheckElements(const LibraryFile& file, const Handle& set, DType dtype,
                       DimsView shape) const {
    const Handle type(H5Dget_type(set.id()));
    const Handle expected = LibraryType(dtype);
    if (!type.ok() || H5Tequal(type.id(), expected.id()) <= 0) {
      return Differs(ErrorKind::kDtypeMismatch, file, "another element type")
          .Expected(fmt::format("{} ({})", DTypeName(dtype), DescribeType(expected.id())))
          .Actual(DescribeType(type.id()));
    }
    CKPT_ASSIGN_OR_RETURN(const Dims found, ShapeOf(file, set));
    if (std::ranges::equal(found, shape)) return OkStatus();
    return Differs(ErrorKind::kShapeMismatch, file, "another shape")
        .Expected(FormatDims(shape))
        .Actual(FormatDims(found));
  }

  static Result<Dims> ShapeOf(const LibraryFile& file, const Handle& set) {
    const Handle space(H5Dget_space(set.id()));
    const int rank = H5Sget_simple_extent_ndims(space.id());
    if (rank < 0 || H5Sget_simple_extent_type(space.id()) == H5S_NULL) {
      return file.Fail("the HDF5 library finds no shape");
    }
    std::vector<hsize_t> dims(static_cast<std::size_t>(rank));
    H5Sget_simple_extent_dims(space.id(), dims.data(), nullptr);
    return Dims(dims.begin(), dims.end());
  }

  // The pieces of a data set as the library describes its storage.
  Status FindPlaces(LibraryFile& file, const Handle& set, const TargetTensor& tensor,
                    const Dims& shape, std::vector<Place>& places) {
    const Handle storage(H5Dget_create_plist(set.id()));
    switch (H5Pget_layout(storage.id())) {
      case H5D_CONTIGUOUS:
        return FindSegments(file, set, storage, shape, places);
      case H5D_CHUNKED:
        return FindChunks(file, set, storage, tensor, places);
      case H5D_VIRTUAL:
        return FindShown(file, storage, tensor, places);
      default:
        return Differs(ErrorKind::kValueMismatch, file, "a storage layout that we do not write");
    }
  }

  Status FindSegments(const LibraryFile& file, const Handle& set, const Handle& storage,
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
      if (has_checksums_ && !place.crc32) {
        return Differs(ErrorKind::kMissing, file, "no attribute").Expected(kCrc32Attribute);
      }
      places.push_back(std::move(place));
      return OkStatus();
    }
    const Handle type(H5Dget_type(set.id()));
    std::uint64_t row_bytes = H5Tget_size(type.id());
    for (std::size_t d = 1; d < shape.size(); ++d)
      row_bytes *= static_cast<std::uint64_t>(shape[d]);
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
  Status FindChunks(const LibraryFile& file, const Handle& set, const Handle& storage,
                    const TargetTensor& tensor, std::vector<Place>& places) const {
    std::size_t num_values = 0;
    unsigned flags = 0;
    const bool is_zstd = H5Pget_nfilters(storage.id()) == 1 &&
                         H5Pget_filter2(storage.id(), 0, &flags, &num_values, nullptr, 0, nullptr,
                                        nullptr) == kZstdFilter;
    if (!is_zstd)
      return Differs(ErrorKind::kValueMismatch, file, "other filters than zstd (32015)");
    std::vector<hsize_t> dims(tensor.shape.size());
    const Handle space(H5Dget_space(set.id()));
    hsize_t count = 0;
    if (H5Pget_chunk(storage.id(), static_cast<int>(dims.size()), dims.data()) < 0 ||
        H5Dget_num_chunks(set.id(), space.id(), &count) < 0) {
      return file.Fail("the HDF5 library cannot count the chunks");
    }
    const GlobalTensor* const indexed = index_.FindTensor(tensor.key);
    if (indexed == nullptr || indexed->num_chunks != count) {
      return Differs(ErrorKind::kValueMismatch, file, "another number of chunks")
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

  // What a selection covers. Ours are one box, or everything.
  Result<Box> BoxOf(const LibraryFile& file, const Handle& space, const Dims& shape) const {
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
    return Differs(ErrorKind::kValueMismatch, file, "a virtual data set of something but boxes");
  }

  Status FindShown(LibraryFile& file, const Handle& storage, const TargetTensor& tensor,
                   std::vector<Place>& places) {
    std::size_t count = 0;
    if (H5Pget_virtual_count(storage.id(), &count) < 0) {
      return file.Fail("the HDF5 library cannot count the parts of a virtual data set");
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::optional<std::string> name =
          NameOfSource(TextBy([&](char* text, std::size_t size) {
            return H5Pget_virtual_filename(storage.id(), i, text, size);
          }));
      const std::optional<std::string> path =
          NameOfSource(TextBy([&](char* text, std::size_t size) {
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
        return Differs(ErrorKind::kValueMismatch, file,
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
  Status FindStored(LibraryFile& file, const Handle& set, const Dims& shape,
                    std::vector<Place>& places) const {
    const Handle storage(H5Dget_create_plist(set.id()));
    if (H5Pget_layout(storage.id()) == H5D_CONTIGUOUS) {
      return FindSegments(file, set, storage, shape, places);
    }
    return Differs(ErrorKind::kValueMismatch, file, "a piece that is not stored in one range");
  }

  Status CheckAllShown(LibraryFile& file) {
    CKPT_ASSIGN_OR_RETURN(const std::set<std::string> pieces,
                          Links(file, fmt::format("/{}", kChunksGroup)));
    for (const std::string& piece : pieces) {
      const std::string path = fmt::format("/{}/{}", kChunksGroup, piece);
      if (!shown_[&file].contains(path)) {
        return Differs(ErrorKind::kValueMismatch, file, "a piece that no tensor shows")
            .Actual(Quote(path));
      }
    }
    return OkStatus();
  }

  Status CheckObjects() {
    CKPT_ASSIGN_OR_RETURN(std::set<std::string> names,
                          Links(*main_, fmt::format("/{}", kObjectsGroup)));
    for (const ObjectEntry& object : index_.objects()) {
      if (names.erase(LinkNameOf(object.key)) == 0) {
        return Differs(ErrorKind::kMissing, *main_, "no data set of the object").Tensor(object.key);
      }
      CKPT_RETURN_IF_ERROR(CheckObject(object).Tensor(object.key));
    }
    if (names.empty()) return OkStatus();
    return Differs(ErrorKind::kValueMismatch, *main_, "an object that was not planned")
        .Actual(Quote(*names.begin()));
  }

  Status CheckObject(const ObjectEntry& object) {
    CKPT_ASSIGN_OR_RETURN(
        const Handle set,
        OpenDataSet(*main_, fmt::format("/{}/{}", kObjectsGroup, LinkNameOf(object.key))));
    // The type is text of the source's; that it is there is enough. Numbers are true if their
    // digests are in the object, which is known when they are read.
    CKPT_RETURN_IF_ERROR(CheckAttributes(set, object.key, {{kTypeAttribute, ""}},
                                         {kNumbersAttribute, kCrc32Attribute}));
    const Handle type(H5Dget_type(set.id()));
    if (H5Tget_class(type.id()) != H5T_STRING || H5Tis_variable_str(type.id()) != 0) {
      return Differs(ErrorKind::kDtypeMismatch, *main_, "an object that is no text")
          .Actual(DescribeType(type.id()));
    }
    const haddr_t offset = H5Dget_offset(set.id());
    const hsize_t size = H5Dget_storage_size(set.id());
    if (offset != object.offset_bytes || size != object.size_bytes) {
      return Differs(ErrorKind::kValueMismatch, *main_, "a text in another place")
          .Expected(DescribeRange(main_->name(), object.offset_bytes, object.size_bytes))
          .Actual(DescribeRange(main_->name(), offset, size));
    }
    CKPT_ASSIGN_OR_RETURN(const std::optional<std::uint32_t> crc32, ReadCrc32(*main_, set));
    if (!crc32) {
      return Differs(ErrorKind::kMissing, *main_, "no attribute").Expected(kCrc32Attribute);
    }
    CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file,
                          files_.Open(files_.own_name()));
    return VerifyRangeCrc32(*file, "a text", offset, size, *crc32);
  }

  LibraryLock lock_;  // first: the library is called until the last member is gone
  DataFiles files_;
  const CheckpointSource& strict_;
  const CheckpointIndex& index_;
  const EntryPaths paths_;
  bool has_checksums_ = false;  // every tensor that is stored in one piece has one
  std::map<std::string, std::unique_ptr<LibraryFile>> opened_;
  std::map<const LibraryFile*, std::set<std::string>> shown_;  // data sets that tensors show
  LibraryFile* main_ = nullptr;
};

}  // namespace

Status ProveByLibrary(Storage& storage, const Path& path, const WritePlan& plan) {
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointSource> strict, OpenSource(storage, path));
  return CompareWithLibrary(storage, path, plan, *strict)
      .While("proving the result by the HDF5 library");
}

Status CompareWithLibrary(Storage& storage, const Path& path, const WritePlan& plan,
                          const CheckpointSource& strict) {
  return Prover(storage, path, strict).Prove(plan);
}

}  // namespace ckpt::hdf5
