#include "tools/ckpt-inspect/digest_as.h"

#include <memory>
#include <utility>

#include "converters/verbs/model_digest.h"
#include "converters/verbs/model_source.h"
#include "core/base/task_pool.h"
#include "core/io/posix_storage.h"

namespace ckpt::inspect {

Result<ModelDigests> DigestModelAs(const OpenedCheckpoint& checkpoint, const std::string& layout,
                                   const Path& assets, HashAlgorithm algorithm,
                                   const cli::CommonOptions& options, ProgressSink& progress) {
  // The caller owns the checkpoint; the model only refers to it.
  const std::shared_ptr<const OpenedCheckpoint> borrowed(std::shared_ptr<void>(), &checkpoint);
  OpenModelOptions open;
  open.assets = assets;
  CKPT_ASSIGN_OR_RETURN(const ModelSource model, UnderstandModel(PosixStorage(), borrowed, open));
  CKPT_ASSIGN_OR_RETURN(
      ModelDigest digest,
      DigestModel(model, {.as = layout,
                          .algorithm = algorithm,
                          .memory_budget_bytes = options.memory_budget,
                          .threads = options.threads == 0 ? DefaultThreads() : options.threads,
                          .progress = &progress}));
  return ModelDigests{.tensors = std::move(digest.tensors),
                      .left_out = digest.left_out,
                      .warnings = std::move(digest.warnings)};
}

}  // namespace ckpt::inspect
