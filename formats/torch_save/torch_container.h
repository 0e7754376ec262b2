// A torch.save container taken apart: the pickled object, and where its storages lie.
#ifndef CKPT_FORMATS_TORCH_SAVE_TORCH_CONTAINER_H_
#define CKPT_FORMATS_TORCH_SAVE_TORCH_CONTAINER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/entry_paths.h"
#include "core/io/storage.h"
#include "formats/pickle/reader.h"

namespace ckpt::torch_save {

// The bytes behind one of torch's storages; tensors are views of it.
struct StorageExtent {
  std::string name;                // of the record that holds it, for messages
  std::uint64_t offset_bytes = 0;  // in the file
  std::uint64_t size_bytes = 0;
  std::optional<std::uint32_t> crc32;
};

// Thread-safety: const access is thread-safe.
struct TorchContainer {
  std::shared_ptr<const ReadableFile> file;
  pickle::ParsedPickle pickle;
  std::map<std::string, StorageExtent, std::less<>> storages;  // by the key that the pickle uses
  bool is_big_endian = false;
  // What a file of ours says: where values stand that are one entry each (state_file.h), and where
  // the checkpoint came from, as a manifest; empty: nothing.
  std::vector<EntryPath> whole = {};
  std::string origin = {};
  std::vector<Problem> warnings;
};

// The zip container in a byte range of a file. The checksum of the pickle is verified, those of the
// storages are not.
//
// Errors: those of zip::Archive::Open and ParsePickle, kIncomplete (no data.pkl: an aborted save),
// kUnsupported (TorchScript), kChecksum.
Result<TorchContainer> OpenZipContainer(std::shared_ptr<const ReadableFile> file,
                                        std::uint64_t offset, std::uint64_t length);

// Whatever torch.save ever wrote as a whole file, told apart by its first bytes.
//
// Errors: those of OpenZipContainer and OpenLegacyStream, kTruncated (an empty file), kUnsupported
// (a plain pickle, tar, or nothing of torch's).
Result<TorchContainer> OpenTorchFile(std::shared_ptr<const ReadableFile> file);

// Reads a storage once and compares its checksum, if it has one. Errors: kChecksum, kTruncated,
// kIo.
Status VerifyStorage(const TorchContainer& container, const StorageExtent& storage);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_TORCH_CONTAINER_H_
