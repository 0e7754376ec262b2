#include "trainer/run/internal/published_model.h"

#include <string>
#include <utility>

#include "converters/config/config_patch.h"
#include "converters/config/hf_config.h"
#include "converters/verbs/side_files.h"
#include "formats/safetensors/sharded_index.h"

namespace ckpt::train {

Result<layout::Configuration> ReadPublishedConfig(Storage& storage, const Path& assets,
                                                  std::int64_t padded_vocab_size) {
  const Path path = assets / std::string(kHfConfigName);
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  if (assets.empty() || stat.type == FileType::kMissing) {
    return Error(ErrorKind::kNotFound, "save_format hf needs a config.json, and the run has none")
        .Hint(
            "begin with --init hf:DIR, or save as fsdp_dtensor and convert with ckpt-convert "
            "--hf-assets "
            "DIR");
  }
  CKPT_ASSIGN_OR_RETURN(const std::string json, ReadSmallFile(storage, path, kMaxHfConfigBytes));
  CKPT_ASSIGN_OR_RETURN(layout::Configuration config, ParseHfConfig(json, path.string()));
  config["padded_vocab_size"] = padded_vocab_size;
  return config;
}

Result<SavedFiles> CopyPublishedFiles(Storage& storage, const Path& assets) {
  SavedFiles files;
  if (assets.empty()) return files;
  CKPT_ASSIGN_OR_RETURN(const SideFiles listed, ListSideFiles(storage, assets));
  for (const std::string& name : listed.carried) {
    if (name != safetensors::kIndexFileName) {
      files.copies.push_back({.from = assets / name, .name = name});
    }
  }
  return files;
}

Result<SavedFiles> DescribePublishedFiles(Storage& storage, const Path& assets, DType dtype) {
  CKPT_ASSIGN_OR_RETURN(SavedFiles files, CopyPublishedFiles(storage, assets));
  const Path path = assets / std::string(kHfConfigName);
  CKPT_ASSIGN_OR_RETURN(const std::string config, ReadSmallFile(storage, path, kMaxHfConfigBytes));
  std::string described = DescribeDtype(config, dtype);
  if (described == config) return files;
  std::erase_if(files.copies, [](const WriteCopy& copy) { return copy.name == kHfConfigName; });
  files.texts.push_back({.name = std::string(kHfConfigName), .content = std::move(described)});
  return files;
}

}  // namespace ckpt::train
