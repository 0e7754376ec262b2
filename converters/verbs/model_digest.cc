#include "converters/verbs/model_digest.h"

#include <algorithm>
#include <utility>

#include "converters/families/known_namings.h"
#include "core/base/task_pool.h"
#include "core/base/warning.h"
#include "core/exec/nest_reader.h"
#include "core/layout/affine.h"

namespace ckpt {
namespace {

Result<std::string> DigestRecipe(const ModelSource& model, const TargetTensor& tensor,
                                 const TensorRecipe& recipe, HashAlgorithm algorithm,
                                 std::uint64_t budget_bytes) {
  Hasher hasher(algorithm);
  CKPT_RETURN_IF_ERROR(
      StreamRecipe(model.source(), recipe, tensor.shape, budget_bytes, [&](ByteSpan block) {
        hasher.Update(block);
        return OkStatus();
      }).While("computing the digest of " + tensor.key));
  return hasher.Finish();
}

// The stored tensor at `position` with zeros where `recipe` has some: rows that pad a copy mean
// nothing.
TensorRecipe WithoutPadding(const TensorRecipe& recipe, std::uint32_t position,
                            const GlobalTensor& stored) {
  TensorRecipe as_stored = {.nests = {}, .source_dtype = stored.dtype};
  for (const layout::Nest& nest : recipe.nests) {
    if (nest.is_zero_fill()) {
      as_stored.nests.push_back(nest);
      continue;
    }
    for (layout::Nest& part : layout::ClipToSource(layout::IdentityNest(position, stored.shape),
                                                   layout::TargetBounds(nest))) {
      as_stored.nests.push_back(std::move(part));
    }
  }
  return as_stored;
}

Problem GuessedNames(const ModelSource& model) {
  Problem warning = Warning(ErrorKind::kUnsupported,
                            "tensors have the names that most families give them: the checkpoint's "
                            "arguments do not say which one it is",
                            model.checkpoint->path.string());
  warning.hint = "ckpt-inspect digest --hf-assets DIR takes the model's config.json";
  return warning;
}

}  // namespace

void KnownDigests::Add(const TensorRecipe& recipe, DimsView shape, std::string hex) {
  if (recipe.nests.empty()) return;
  known_.emplace(
      recipe.nests.front().source,
      Known{.recipe = &recipe, .shape = Dims(shape.begin(), shape.end()), .hex = std::move(hex)});
}

std::optional<std::string> KnownDigests::Find(const TensorRecipe& recipe, DimsView shape) const {
  if (recipe.nests.empty()) return std::nullopt;
  const auto [begin, end] = known_.equal_range(recipe.nests.front().source);
  const auto found = std::find_if(begin, end, [&](const auto& entry) {
    const Known& known = entry.second;
    return known.recipe->source_dtype == recipe.source_dtype && SameDims(known.shape, shape) &&
           known.recipe->nests == recipe.nests;
  });
  return found == end ? std::nullopt : std::optional(found->second.hex);
}

Result<ModelView> ViewToDigest(const ModelSource& model, std::string_view as) {
  const auto view_as = [&](const KnownNaming& naming) {
    return ViewModel(model, std::string(naming.name), {});
  };
  if (!as.empty()) {
    CKPT_ASSIGN_OR_RETURN(const KnownNaming* naming, FindNamingByWord(as));
    return view_as(*naming);
  }
  Result<ModelView> published = view_as(PublishedNaming());
  if (published.ok() || published.status().kind() != ErrorKind::kCoverage) return published;
  for (const KnownNaming& naming : KnownNamings()) {
    Result<ModelView> view = view_as(naming);
    if (view.ok()) return view;
  }
  return published;
}

Result<ModelDigest> DigestModel(const ModelSource& model, const ModelDigestOptions& options) {
  CKPT_ASSIGN_OR_RETURN(const ModelView view, ViewToDigest(model, options.as));
  CKPT_RETURN_IF_ERROR(CheckCopies(model, options.memory_budget_bytes));

  std::vector<std::size_t> wanted;
  std::uint64_t total = 0;
  for (std::size_t t = 0; t < view.tensors.size(); ++t) {
    if (view.derived[t]) continue;
    wanted.push_back(t);
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes,
                          CountBytes(view.tensors[t].shape, view.tensors[t].dtype));
    total += bytes;
  }
  if (options.progress != nullptr) options.progress->OnPhase(options.phase, total, wanted.size());

  ModelDigest digest;
  digest.tensors.resize(wanted.size());
  const std::uint64_t budget =
      options.memory_budget_bytes / static_cast<std::uint64_t>(std::max(options.threads, 1));
  const auto digest_one = [&](std::size_t task, std::size_t /*worker*/) -> Status {
    const TargetTensor& tensor = view.tensors[wanted[task]];
    const TensorRecipe& recipe = view.recipes[wanted[task]];
    std::optional<std::string> hex;
    if (options.known) hex = options.known(recipe, tensor.shape);
    if (!hex) {
      CKPT_ASSIGN_OR_RETURN(hex, DigestRecipe(model, tensor, recipe, options.algorithm, budget));
    }
    digest.tensors[task] = {tensor.key, tensor.dtype, tensor.shape, *std::move(hex)};
    if (options.progress != nullptr) {
      options.progress->OnDone(tensor.key, NumBytes(tensor.shape, tensor.dtype));
    }
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(RunTasks(wanted.size(), options.threads, options.stop, digest_one));
  std::sort(digest.tensors.begin(), digest.tensors.end(),
            [](const TensorDigest& a, const TensorDigest& b) { return a.key < b.key; });
  digest.checkpoint = CombineDigests(digest.tensors, options.algorithm);
  digest.left_out = model.left_out.size();
  const KnownNaming* const named = FindNaming(view.layout.naming);
  const bool is_of_hub = named != nullptr && !named->is_of_megatron;
  if (model.is_family_guessed && is_of_hub) digest.warnings.push_back(GuessedNames(model));
  return digest;
}

Status CheckCopies(const ModelSource& model, std::uint64_t memory_budget_bytes) {
  constexpr HashAlgorithm kAlgorithm = HashAlgorithm::kXxh3;
  if (model.match.derived_present.empty()) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const ModelView own,
                        ViewModel(model, model.match.layout.naming, model.match.layout.choices));
  const CheckpointIndex& index = model.source().index();
  Status status;
  for (const std::uint32_t copy : model.match.derived_present) {
    const GlobalTensor& stored = index.tensors()[model.match.positions[copy]];
    const std::string key = own.layout.Key(own.layout.tensors[copy]);
    const auto made = std::find_if(own.tensors.begin(), own.tensors.end(),
                                   [&](const TargetTensor& t) { return t.key == key; });
    if (made == own.tensors.end()) continue;  // its original is absent
    const auto t = static_cast<std::size_t>(made - own.tensors.begin());
    CKPT_ASSIGN_OR_RETURN(
        const std::string original,
        DigestRecipe(model, *made, own.recipes[t], kAlgorithm, memory_budget_bytes));
    const TensorRecipe as_stored =
        WithoutPadding(own.recipes[t], model.match.positions[copy], stored);
    CKPT_ASSIGN_OR_RETURN(const std::string actual,
                          DigestRecipe(model, *made, as_stored, kAlgorithm, memory_budget_bytes));
    if (original != actual || stored.dtype != made->dtype) {
      status.Add(
          Error(ErrorKind::kValueMismatch, "a tied tensor is stored twice, with different values")
              .File(model.checkpoint->path.string())
              .Tensor(stored.key)
              .Expected(original)
              .Actual(actual));
    }
  }
  return status;
}

}  // namespace ckpt
