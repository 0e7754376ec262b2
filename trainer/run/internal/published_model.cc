#include "trainer/run/internal/published_model.h"

#include <string>

#include "converters/config/hf_config.h"

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

Result<CarriedFiles> PublishedFiles(Storage& storage, const Path& assets, const Format& format) {
  if (assets.empty()) return CarriedFiles();
  CKPT_ASSIGN_OR_RETURN(const SideFiles listed, ListSideFiles(storage, assets));
  return CarrySideFiles(
      storage, assets, listed.carried,
      {.target = &format, .dtype = DType::kFloat32, .is_decoded = true, .drops_index = true});
}

}  // namespace ckpt::train
