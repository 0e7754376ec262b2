#include "formats/hdf5/internal/library_proof.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <hdf5.h>

#include "core/base/quote.h"
#include "core/io/range_crc.h"
#include "formats/hdf5/internal/data_files.h"
#include "formats/hdf5/internal/held_path.h"
#include "formats/hdf5/internal/library.h"
#include "formats/hdf5/internal/library_contents.h"
#include "formats/hdf5/internal/library_places.h"
#include "formats/hdf5/internal/library_type.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/source.h"

namespace ckpt::hdf5 {
namespace {

class Prover {
 public:
  Prover(Storage& storage, const Path& path, const WritePlan& plan, const CheckpointSource& strict)
      : files_(storage, path),
        plan_(plan),
        strict_(strict),
        index_(strict.index()),
        paths_(strict.Paths()),
        finder_(files_, index_, plan.late_bytes && plan.late_bytes->uses_crc32) {}

  Status Prove() {
    CKPT_ASSIGN_OR_RETURN(main_, finder_.Open(files_.own_name()));
    CKPT_RETURN_IF_ERROR(CheckRoot());
    CKPT_RETURN_IF_ERROR(CheckTensors(ListTensors()));
    CKPT_RETURN_IF_ERROR(CheckObjects());
    for (std::size_t f = 1; f < plan_.files.size(); ++f) {
      CKPT_RETURN_IF_ERROR(finder_.Open(plan_.files[f].name).status());
    }
    return finder_.CheckAllShown();
  }

 private:
  [[nodiscard]] std::vector<TargetTensor> ListTensors() const {
    std::vector<TargetTensor> tensors = plan_.tensors;
    if (!tensors.empty()) {
      tensors.insert(tensors.end(), plan_.known_tensors.begin(), plan_.known_tensors.end());
      return tensors;
    }
    // A plan of links writes no tensors: then the strict reader says which ones there are.
    for (const GlobalTensor& tensor : index_.tensors()) {
      tensors.push_back({.key = tensor.key, .dtype = tensor.dtype, .shape = tensor.shape});
    }
    return tensors;
  }

  Status CheckRoot() {
    CKPT_ASSIGN_OR_RETURN(const std::set<std::string> names, LinksOf(*main_, "/"));
    for (const std::string& name : names) {
      if (name != kTensorsGroup && name != kObjectsGroup && name != kChunksGroup &&
          name != kOriginName) {
        return LibraryFinds(ErrorKind::kValueMismatch, *main_, "an object that was not planned")
            .Actual(Quote(name));
      }
    }
    const Handle layout(H5Aopen(main_->id(), kLayoutAttribute, H5P_DEFAULT));
    std::int64_t version = 0;
    if (!layout.ok() || H5Aread(layout.id(), H5T_NATIVE_INT64, &version) < 0) {
      return main_->Fail(fmt::format("the HDF5 library cannot read {}", kLayoutAttribute));
    }
    if (version == kLayoutVersion) return OkStatus();
    return LibraryFinds(ErrorKind::kValueMismatch, *main_, "another layout")
        .Expected(std::to_string(kLayoutVersion))
        .Actual(std::to_string(version));
  }

  Status CheckTensors(const std::vector<TargetTensor>& tensors) {
    CKPT_ASSIGN_OR_RETURN(std::set<std::string> names,
                          LinksOf(*main_, fmt::format("/{}", kTensorsGroup)));
    for (const TargetTensor& tensor : tensors) {
      if (names.erase(LinkNameOf(tensor.key)) == 0) {
        return LibraryFinds(ErrorKind::kMissing, *main_, "no data set of the tensor")
            .Tensor(tensor.key);
      }
      CKPT_RETURN_IF_ERROR(CheckTensor(tensor).Tensor(tensor.key));
    }
    if (names.empty()) return OkStatus();
    return LibraryFinds(ErrorKind::kValueMismatch, *main_, "a tensor that was not planned")
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
    CKPT_ASSIGN_OR_RETURN(std::vector<Place> found, finder_.Find(*main_, set, tensor));
    const GlobalTensor* const indexed = index_.FindTensor(tensor.key);
    if (indexed == nullptr) {
      return Error(ErrorKind::kMissing, "the result lacks a tensor").File(main_->name());
    }
    std::vector<Place> expected = PlacesOf(strict_, *indexed);
    std::ranges::sort(found);
    std::ranges::sort(expected);
    const auto [e, f] = std::ranges::mismatch(expected, found);
    if (e == expected.end() && f == found.end()) return OkStatus();
    return LibraryFinds(ErrorKind::kValueMismatch, *main_, "elements in another place")
        .Expected(e == expected.end() ? "no further piece" : Describe(*e))
        .Actual(f == found.end() ? "no further piece" : Describe(*f));
  }

  // `expected`: besides the key and its place.
  Status CheckAttributes(const Handle& set, const std::string& key,
                         std::map<std::string, std::string> expected,
                         const std::vector<std::string>& may_have) const {
    expected.emplace(kKeyAttribute, key);
    if (const auto path = paths_.find(key); path != paths_.end()) {
      expected.emplace(kPathAttribute, EncodePath(path->second));
    }
    CKPT_ASSIGN_OR_RETURN(std::set<std::string> names, AttributesOf(*main_, set));
    for (const auto& [name, value] : expected) {
      if (names.erase(name) == 0) {
        return LibraryFinds(ErrorKind::kMissing, *main_, "no attribute").Expected(name);
      }
      if (value.empty() && name == kTypeAttribute) continue;
      CKPT_ASSIGN_OR_RETURN(const std::string text, ReadText(*main_, set, name));
      if (text != value) {
        return LibraryFinds(ErrorKind::kValueMismatch, *main_, "another attribute " + name)
            .Expected(Quote(value))
            .Actual(Quote(text));
      }
    }
    for (const std::string& name : may_have) names.erase(name);
    if (names.empty()) return OkStatus();
    return LibraryFinds(ErrorKind::kValueMismatch, *main_, "an attribute that was not planned")
        .Actual(Quote(*names.begin()));
  }

  Status CheckObjects() {
    CKPT_ASSIGN_OR_RETURN(std::set<std::string> names,
                          LinksOf(*main_, fmt::format("/{}", kObjectsGroup)));
    for (const ObjectEntry& object : index_.objects()) {
      if (names.erase(LinkNameOf(object.key)) == 0) {
        return LibraryFinds(ErrorKind::kMissing, *main_, "no data set of the object")
            .Tensor(object.key);
      }
      CKPT_RETURN_IF_ERROR(CheckObject(object).Tensor(object.key));
    }
    if (names.empty()) return OkStatus();
    return LibraryFinds(ErrorKind::kValueMismatch, *main_, "an object that was not planned")
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
      return LibraryFinds(ErrorKind::kDtypeMismatch, *main_, "an object that is not a text")
          .Actual(DescribeType(type.id()));
    }
    const haddr_t offset = H5Dget_offset(set.id());
    const hsize_t size = H5Dget_storage_size(set.id());
    if (offset != object.offset_bytes || size != object.size_bytes) {
      return LibraryFinds(ErrorKind::kValueMismatch, *main_, "a text in another place")
          .Expected(DescribeRange(main_->name(), object.offset_bytes, object.size_bytes))
          .Actual(DescribeRange(main_->name(), offset, size));
    }
    CKPT_ASSIGN_OR_RETURN(const std::optional<std::uint32_t> crc32, ReadCrc32(*main_, set));
    if (!crc32) {
      return LibraryFinds(ErrorKind::kMissing, *main_, "no attribute").Expected(kCrc32Attribute);
    }
    CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file,
                          files_.Open(files_.own_name()));
    return VerifyRangeCrc32(*file, "a text", offset, size, *crc32);
  }

  LibraryLock lock_;  // first: the library is called until the last member is gone
  DataFiles files_;
  const WritePlan& plan_;
  const CheckpointSource& strict_;
  const CheckpointIndex& index_;
  const EntryPaths paths_;
  PlaceFinder finder_;
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
  return Prover(storage, path, plan, strict).Prove();
}

}  // namespace ckpt::hdf5
