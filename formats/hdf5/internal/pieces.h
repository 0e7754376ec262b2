// Where the elements of a data set lie, as boxes with bytes in files.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_PIECES_H_
#define CKPT_FORMATS_HDF5_INTERNAL_PIECES_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/tensor/box.h"
#include "formats/hdf5/internal/data_files.h"
#include "formats/hdf5/internal/data_set.h"
#include "formats/hdf5/internal/filters.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {

enum class Coding : std::uint8_t { kRaw, kFiltered, kFill };

// How the stored bytes of a piece become elements. kFill has no bytes: one element stands for all.
struct PieceForm {
  Coding coding = Coding::kRaw;
  bool byte_swapped = false;
  Dims strides;                     // of the box, in elements
  std::uint64_t first = 0;          // of a filtered piece: its first element in the decoded bytes
  std::uint64_t decoded_bytes = 0;  // of a filtered piece
  std::shared_ptr<const Filterings> filterings = {};  // of a filtered piece
  std::shared_ptr<const ReadableFile> fill = {};
  std::shared_ptr<const StoredCrc32> checksum = {};  // of the data set that it is from, if known

  // "raw", "fill", or what was applied: "shuffle+zstd".
  [[nodiscard]] std::string CodingName() const;
};

struct Piece {
  Box box;
  std::string file;  // relative to the HDF5 file's directory
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  PieceForm form;
};

// An HDF5 file, and its data sets by path.
struct OpenedFile {
  std::string name;  // relative to the directory of the first one
  std::unique_ptr<StructureFile> file;
  std::uint64_t root = 0;
  bool is_ours = false;  // this program wrote the file
  std::map<std::string, DataSet, std::less<>> data_sets;
  std::map<std::uint64_t, std::map<std::string, std::uint64_t, std::less<>>> groups;
};

class PieceFinder {
 public:
  explicit PieceFinder(const DataFiles& files) : files_(files) {}

  // Errors: those of the structure; kUnsupported (a filter that is not read, a virtual data set of
  // virtual ones, or with another element type), kMissingFile, kUnsafePath, kResource.
  Result<std::vector<Piece>> Find(OpenedFile& file, const DataSet& set) {
    return Find(file, set, false);
  }
  // Of the files that virtual data sets show.
  [[nodiscard]] std::vector<Problem> TakeWarnings() {
    std::vector<Problem> warnings;
    for (auto& [name, source] : sources_) {
      std::ranges::move(source.file->TakeWarnings(), std::back_inserter(warnings));
    }
    return warnings;
  }

 private:
  Result<std::vector<Piece>> Find(OpenedFile& file, const DataSet& set, bool is_source);
  Result<std::vector<Piece>> FindSegments(const OpenedFile& file, const DataSet& set);
  Result<std::vector<Piece>> FindChunks(OpenedFile& file, const DataSet& set);
  Status AddUnwritten(OpenedFile& file, const DataSet& set, const std::set<Dims>& stored,
                      std::vector<Piece>& pieces);
  Result<std::vector<Piece>> FindVirtual(OpenedFile& file, const DataSet& set);
  Status AddGaps(OpenedFile& file, const DataSet& set, std::vector<Box> shown,
                 std::vector<Piece>& pieces);
  Result<Piece> Fill(const OpenedFile& file, const DataSet& set, Box box);
  Result<OpenedFile*> OpenSource(OpenedFile& from, const std::string& name);
  Status CountPieces(std::uint64_t count);

  const DataFiles& files_;
  std::map<std::string, OpenedFile> sources_;  // of virtual data sets
  std::uint64_t filled_bytes_ = 0;
  std::uint64_t num_pieces_ = 0;
  std::uint64_t num_cuts_ = 0;
};

// The data set at `path`. Errors: kNotFound, those of the structure.
Result<const DataSet*> FindDataSet(OpenedFile& file, std::string_view path);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_PIECES_H_
