// The files that an HDF5 file names, and which of them it may name.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_DATA_FILES_H_
#define CKPT_FORMATS_HDF5_INTERNAL_DATA_FILES_H_

#include <memory>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::hdf5 {

// Whether the file has the extension of a file of weights, so that an HDF5 file of another
// directory may show what it holds.
[[nodiscard]] bool IsNamedAsWeights(const Path& file);
// ".safetensors, .distcp, …".
[[nodiscard]] std::string NamesOfWeights();

// The files that pieces name.
class DataFiles {
 public:
  DataFiles(Storage& storage, const Path& hdf5_file);

  // The name relative to the directory of the HDF5 file, for a name that is found in it. A file of
  // another directory must be named as files of weights are: else an HDF5 file from a stranger
  // could pass off any file of this machine as a tensor.
  // Errors: kUnsafePath.
  [[nodiscard]] Result<std::string> Resolve(std::string_view name) const;
  // Errors: kMissingFile, kIo.
  [[nodiscard]] Result<std::shared_ptr<const ReadableFile>> Open(const std::string& name) const;
  [[nodiscard]] const std::string& own_name() const { return own_name_; }

 private:
  Storage* storage_;
  Path directory_;
  std::string own_name_;
};

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_DATA_FILES_H_
