#include "tools/ckpt-inspect/digest_as.h"

#include "core/base/quote.h"

namespace ckpt::inspect {

Result<ModelDigests> DigestModelAs(const OpenedCheckpoint& /*checkpoint*/,
                                   const std::string& layout, HashAlgorithm /*algorithm*/,
                                   const cli::CommonOptions& /*options*/,
                                   ProgressSink& /*progress*/) {
  if (layout != "hf" && layout != "fsdp" && layout != "torch-dist") {
    return Error(ErrorKind::kUsage, "unknown layout " + Quote(layout))
        .Expected("hf, fsdp or torch-dist");
  }
  return Error(ErrorKind::kUnsupported, "digests under another layout are not in this build");
}

}  // namespace ckpt::inspect
