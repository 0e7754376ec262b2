#include <utility>

#include "converters/verbs/model_source.h"
#include "core/layout/affine.h"
#include "core/layout/compose.h"

namespace ckpt {

ModelView ViewAsStored(const ModelSource& model) {
  ModelView view;
  for (const StoredTensor& stored : model.stored) {
    const GlobalTensor& tensor = model.source().index().tensors()[stored.position];
    TensorRecipe recipe{.nests = {}, .source_dtype = tensor.dtype};
    if (!IsEmpty(WholeBox(tensor.shape))) {
      recipe.nests.push_back(layout::IdentityNest(stored.position, tensor.shape));
    }
    view.tensors.push_back({.key = stored.key, .dtype = tensor.dtype, .shape = tensor.shape});
    view.recipes.push_back(std::move(recipe));
    view.derived.push_back(false);
    view.expected.push_back(false);
  }
  return view;
}

Result<ModelView> ViewModel(const ModelSource& model, const std::string& naming,
                            const layout::Choices& choices, MixedDtypes mixed) {
  ModelView view;
  CKPT_ASSIGN_OR_RETURN(view.layout,
                        layout::Resolve(*model.family, naming, model.layout_config(), choices));
  CKPT_ASSIGN_OR_RETURN(layout::Composition composition,
                        layout::Compose(model.match.layout, view.layout));
  layout::TargetDtypes dtypes = layout::InheritDtypes(composition, view.layout, model.match,
                                                      model.source().index().tensors());
  Status status(std::move(dtypes.problems));
  if (mixed == MixedDtypes::kRefuse) status.Add(Status(std::move(dtypes.mixed)));
  for (std::size_t t = 0; t < view.layout.tensors.size(); ++t) {
    const layout::ResolvedTensor& tensor = view.layout.tensors[t];
    TensorRecipe recipe{.nests = std::move(composition.nests[t]), .source_dtype = dtypes.dtypes[t]};
    std::size_t stored = 0;
    std::size_t absent = 0;
    for (layout::Nest& nest : recipe.nests) {
      if (nest.is_zero_fill()) continue;
      nest.source = model.match.positions[nest.source];
      ++(nest.source == layout::SourceMatch::kAbsent ? absent : stored);
    }
    if (stored == 0 && absent != 0) continue;
    if (absent != 0) {
      status.Add(Error(ErrorKind::kMissing, "part of a tensor is missing in the source")
                     .File(model.checkpoint->path.string())
                     .Tensor(view.layout.Key(tensor)));
      continue;
    }
    view.tensors.push_back(
        {.key = view.layout.Key(tensor), .dtype = recipe.source_dtype, .shape = tensor.shape});
    view.recipes.push_back(std::move(recipe));
    view.derived.push_back(tensor.derived);
    view.expected.push_back(tensor.expected);
  }
  if (!status.ok()) return status;
  return view;
}

}  // namespace ckpt
