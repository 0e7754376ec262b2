#include "formats/mp_rank/internal/rank_models.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/tensor/shape.h"
#include "formats/mp_rank/internal/global_name.h"

namespace ckpt::mp_rank {
namespace {

using torch_save::RankPart;

// The directories of a tree are those of tensor and pipeline ranks alone.
Status CheckIsPlain(const RankPart& part) {
  if (part.local.shape == part.shape) return OkStatus();
  return Error(ErrorKind::kUnsupported, "data-parallel ranks divide the tensor, and one saved it")
      .Tensor(part.key)
      .Expected(fmt::format("all of {}", FormatDims(part.shape)))
      .Actual(fmt::format("{} of one rank", FormatDims(part.local.shape)));
}

}  // namespace

Result<RankModels> ReadModels(const torch_save::RankSet& set,
                              const std::vector<RankDirectory>& ranks, const Arguments& arguments) {
  RankModels models;
  LayerOffsets offsets;
  Status failures;
  for (std::size_t file = 0; file < set.files.size(); ++file) {
    Result<std::vector<RankPart>> parts = set.files[file]->RankParts(kModelMember);
    if (!parts.ok()) {
      failures.Add(std::move(parts).status());
      continue;
    }
    for (const RankPart& part : *parts) {
      failures.Add(CheckIsPlain(part).File(set.names[file]));
      const std::optional<LocalName> local = ParseLocalName(part.key);
      if (local) failures.Add(offsets.Note(ranks[file].at.pipeline, *local).File(set.names[file]));
    }
    models.parts.push_back(*std::move(parts));
  }
  if (!failures.ok()) return failures;
  const std::int64_t num_layers = offsets.Finish();
  if (arguments.num_layers && *arguments.num_layers != num_layers) {
    return Error(ErrorKind::kBadMetadata, "the stages have another number of layers than the model")
        .File(set.names.front())
        .Expected(fmt::format("{}, as the arguments say", *arguments.num_layers))
        .Actual(fmt::format("{}", num_layers));
  }
  const bool have_own_states = arguments.sizes.tensor * arguments.sizes.expert > 1;
  for (std::size_t file = 0; file < models.parts.size(); ++file) {
    const Coordinate& at = ranks[file].at;
    std::vector<std::string>& names = models.names.emplace_back();
    for (const RankPart& part : models.parts[file]) {
      std::string& name = names.emplace_back();
      const std::optional<LocalName> local = ParseLocalName(part.key);
      if (!local) continue;
      if (have_own_states && local->name.ends_with(kExtraStateEnding)) {
        models.extra_state_bytes += part.local.SizeBytes();
        continue;
      }
      Result<std::string> numbered = WithExpertNumber(offsets.GlobalName(at.pipeline, *local),
                                                      at.expert * arguments.own_experts());
      if (!numbered.ok()) return std::move(numbered).status().File(set.names[file]);
      name = *std::move(numbered);
      // The last stage keeps a copy of the embedding that it shares with the first one.
      if (arguments.ties_head && name == kHeadName) name = kEmbeddingName;
    }
  }
  return models;
}

}  // namespace ckpt::mp_rank
