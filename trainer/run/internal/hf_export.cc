#include "trainer/run/internal/hf_export.h"

#include <string>
#include <utility>

#include "converters/config/hf_config.h"
#include "converters/verbs/convert.h"
#include "core/io/staging_name.h"
#include "formats/hf/format.h"

namespace ckpt::train {

Path WeightsToExport(const Path& target) { return StagingOf(target.string() + ".weights"); }

Status CheckExport(Storage& storage, const Path& assets, const RunningState& state,
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
  config["padded_vocab_size"] = padded_vocab_size;  // a matter of the run, not of the model
  return CheckSavesAsModel(state, std::move(config));
}

Status ExportToHf(Storage& storage, const Path& target) {
  const Path weights = WeightsToExport(target);
  ConvertOptions options;
  options.source = weights;
  options.target = target;
  options.to.container = &hf::kFormat;
  options.overwrite = true;
  CKPT_ASSIGN_OR_RETURN(const PreparedConversion prepared, PrepareConversion(storage, options));
  CKPT_RETURN_IF_ERROR(RunConversion(storage, prepared, options).status());
  return storage.RemoveAll(weights);
}

}  // namespace ckpt::train
