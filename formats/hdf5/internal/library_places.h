// Where the HDF5 library finds the elements of data sets.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_PLACES_H_
#define CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_PLACES_H_

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"
#include "core/tensor/shape.h"
#include "formats/hdf5/internal/data_files.h"
#include "formats/hdf5/internal/library.h"

namespace ckpt::hdf5 {

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

[[nodiscard]] std::string Describe(const Place& place);

// Where the index of `source` says that a tensor lies. REQUIRES: `source` is of OpenSource.
[[nodiscard]] std::vector<Place> PlacesOf(const CheckpointSource& source,
                                          const GlobalTensor& tensor);

// Asks the library. REQUIRES: a LibraryLock is held as long as the object lives.
class PlaceFinder {
 public:
  // `index`: its chunks are those that the library is asked for. Both must outlive this.
  // `needs_checksums`: every data set that is stored in one piece has one.
  PlaceFinder(const DataFiles& files, const CheckpointIndex& index, bool needs_checksums)
      : files_(files), index_(index), needs_checksums_(needs_checksums) {}

  // A file by the name that DataFiles knows it by; opened once. Errors: those of DataFiles::Open
  // and LibraryFile::Open.
  Result<LibraryFile*> Open(const std::string& name);

  // The pieces of a tensor's data set, as the library describes its storage. Errors: kBadMetadata
  // (the library refuses to answer), kValueMismatch (a storage that we do not write),
  // kShapeMismatch, kDtypeMismatch, kMissing (a checksum), those of Open.
  Result<std::vector<Place>> Find(LibraryFile& file, const Handle& set, const TargetTensor& tensor);

  // Pieces of the files opened that no tensor shows would be elements that went astray. Errors:
  // kValueMismatch, kBadMetadata.
  Status CheckAllShown() const;

 private:
  Status FindSegments(const LibraryFile& file, const Handle& set, const Handle& storage,
                      const Dims& shape, std::vector<Place>& places) const;
  Status FindChunks(const LibraryFile& file, const Handle& set, const Handle& storage,
                    const TargetTensor& tensor, std::vector<Place>& places) const;
  Status FindShown(LibraryFile& file, const Handle& storage, const TargetTensor& tensor,
                   std::vector<Place>& places);
  Status FindStored(const LibraryFile& file, const Handle& set, const Dims& shape,
                    std::vector<Place>& places) const;
  Status CheckAllShown(const LibraryFile& file) const;

  const DataFiles& files_;
  const CheckpointIndex& index_;
  const bool needs_checksums_;
  std::map<std::string, std::unique_ptr<LibraryFile>> opened_;
  std::map<const LibraryFile*, std::set<std::string>> shown_;  // data sets that tensors show
};

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_PLACES_H_
