#include "tools/ckpt-train/hf_export.h"

#include "converters/verbs/convert.h"
#include "core/io/staging_name.h"

namespace ckpt::train {

Path WeightsToExport(const Path& target) { return StagingOf(target.string() + ".weights"); }

Status ExportToHf(Storage& storage, const Path& target) {
  const Path weights = WeightsToExport(target);
  ConvertOptions options;
  options.source = weights;
  options.target = target;
  options.to = "hf";
  options.overwrite = true;
  CKPT_ASSIGN_OR_RETURN(const PreparedConversion prepared, PrepareConversion(storage, options));
  CKPT_RETURN_IF_ERROR(RunConversion(storage, prepared, options).status());
  return storage.RemoveAll(weights);
}

}  // namespace ckpt::train
