#include "converters/verbs/internal/check_options.h"

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/verbs/internal/explain_mismatch.h"
#include "formats/format.h"
#include "formats/registry/stored_run.h"

namespace ckpt {
namespace {

// A cast is right for weights. What an optimizer keeps, its counters and the scales of quantised
// weights are of use with all their digits only.
Status CheckCastAsStored(const ModelSource& model) {
  std::vector<GlobalTensor> chosen;
  IndexBuilder builder;
  for (const StoredTensor& stored : model.stored) {
    chosen.push_back(model.source().index().tensors()[stored.position]);
    builder.AddTensor(chosen.back().key, chosen.back().dtype, chosen.back().shape);
  }
  CKPT_ASSIGN_OR_RETURN(const CheckpointIndex index, builder.Build());
  if (HoldsOptimizer(index)) {
    return Error(ErrorKind::kUsage,
                 "--dtype is for weights: under the source's own keys it would round the optimizer")
        .File(model.checkpoint->path.string())
        .Hint(
            "ckpt-convert --only takes the keys that it names, and --naming with --weights-only "
            "the model's weights");
  }
  const GlobalTensor* const quantised = FindQuantised(chosen);
  if (quantised == nullptr) return OkStatus();
  return Error(ErrorKind::kUsage,
               "--dtype is for weights: of quantised ones, which are copied as they are stored, it "
               "would round the scales")
      .File(model.checkpoint->path.string())
      .Tensor(quantised->key)
      .Hint(
          "leave ckpt-convert's --dtype out; with --naming, weights of methods that are known here "
          "are decoded and then cast");
}

}  // namespace

Status CheckLinkOptions(const ConvertOptions& options, const Target& to) {
  const auto refuse = [](std::string_view what) {
    return Error(ErrorKind::kUsage, fmt::format("--link copies no tensor, so {}", what))
        .Hint("leave ckpt-convert's --link out");
  };
  if (!to.container->can_link) return refuse(fmt::format("{} cannot have it", to.container->name));
  if (!to.NamingInUse().empty()) return refuse("tensors keep the source's keys");
  if (options.dtype) return refuse("none can be cast");
  if (options.zstd_level) return refuse("none can be compressed");
  if (options.files != 0 || options.max_shard_bytes != 0) return refuse("it makes one file");
  if (options.worker || options.finalize) return refuse("there is nothing for workers to share");
  if (options.resume) return refuse("there is nothing to resume");
  return OkStatus();
}

Status CheckOptionsAsStored(const ConvertOptions& options, const PreparedConversion& prepared) {
  const OpenModelOptions& model = options.model;
  const std::initializer_list<std::pair<std::string_view, bool>> of_models = {
      {"--weights-only", options.weights_only},
      {"--mapping", !model.mapping.empty()},
      {"--model-type", !model.model_type.empty()},
      {"--allow-missing", model.allow_missing}};
  for (const auto& [option, is_asked] : of_models) {
    if (!is_asked) continue;
    return Error(
               ErrorKind::kUsage,
               fmt::format("{} changes nothing: tensors keep the source's keys, whatever they are",
                           option))
        .File(prepared.model.checkpoint->path.string())
        .Hint("ckpt-convert --naming takes the model's weights, and --only the keys that it names");
  }
  if (!model.assets.empty() && prepared.to.container->is_one_file) {
    return Error(ErrorKind::kUsage,
                 "--hf-assets changes nothing: tensors keep the source's keys, and the target is "
                 "one file")
        .File(model.assets.string())
        .Hint("leave ckpt-convert's --hf-assets out, or choose names with --naming");
  }
  return options.dtype ? CheckCastAsStored(prepared.model) : OkStatus();
}

}  // namespace ckpt
