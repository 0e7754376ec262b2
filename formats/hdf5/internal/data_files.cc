#include "formats/hdf5/internal/data_files.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/base/quote.h"

namespace ckpt::hdf5 {
namespace {

constexpr std::array<std::string_view, 9> kWeightExtensions = {
    ".safetensors", ".distcp", ".pt", ".pth", ".bin", ".ckpt", ".h5", ".hdf5", ".mat"};

}  // namespace

bool IsNamedAsWeights(const Path& file) {
  return std::ranges::find(kWeightExtensions, file.extension().string()) != kWeightExtensions.end();
}

std::string NamesOfWeights() { return fmt::format("{}", fmt::join(kWeightExtensions, ", ")); }

DataFiles::DataFiles(Storage& storage, const Path& hdf5_file)
    : storage_(&storage),
      directory_(hdf5_file.has_parent_path() ? hdf5_file.parent_path() : Path(".")),
      own_name_(hdf5_file.filename().string()) {}

Result<std::string> DataFiles::Resolve(std::string_view name) const {
  if (JoinInside(directory_, name).ok()) return std::string(name);
  const Path path(std::string{name});
  if (!IsNamedAsWeights(path) || name.find('\0') != std::string_view::npos) {
    return Error(ErrorKind::kUnsafePath,
                 "a file outside the directory of the HDF5 file that is not named as weights are")
        .File(directory_.string())
        .Expected(fmt::format("a file beside it, or one of {}", NamesOfWeights()))
        .Actual(Quote(name));
  }
  const Path target = path.is_absolute() ? path : directory_ / path;
  return CanonicalPath(target).lexically_relative(CanonicalPath(directory_)).string();
}

Result<std::shared_ptr<const ReadableFile>> DataFiles::Open(const std::string& name) const {
  const Path path = directory_ / name;
  Result<std::shared_ptr<const ReadableFile>> opened = storage_->Open(path);
  if (!opened.ok() && opened.status().kind() == ErrorKind::kNotFound) {
    return Error(ErrorKind::kMissingFile, "a file that holds elements of a data set is not there")
        .File(path.string());
  }
  return opened;
}

}  // namespace ckpt::hdf5
