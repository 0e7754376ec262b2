#include "trainer/run/internal/fits_model.h"

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "converters/verbs/model_digest.h"
#include "core/base/units.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "trainer/model/model.h"
#include "trainer/step/trained_units.h"

namespace ckpt::train {
namespace {

constexpr std::size_t kMostListed = 10;

// What WeightReader gives the trainer.
constexpr DType kLoadedDtype = DType::kFloat32;

// Dtypes that cannot be loaded at all are left to WeightReader.
bool IsRounded(const TensorRecipe& recipe) {
  const std::optional<DType> common = CommonDtype(recipe.source_dtype, kLoadedDtype);
  return common && *common != kLoadedDtype;
}

struct Place {
  Dims shape;
  bool is_needed = true;
};
using Places = std::map<std::string, Place, std::less<>>;

// The tensors of the whole model, on all ranks.
Places PlacesOf(trainer::TrainConfig config, StoredPart part) {
  config.mesh.expert_parallel = 1;
  Places places;
  for (const trainer::UnitSpec& unit : ListTrainedUnits(config, 0)) {
    for (const trainer::ParamSpec& param : unit.params) {
      places[param.name] = {.shape = param.shape,
                            .is_needed = part != StoredPart::kMoment || param.trainable};
    }
  }
  if (part == StoredPart::kMoment) return places;
  for (const trainer::ReplicatedBufferSpec& buffer : trainer::ListBuffers(config.model)) {
    places[buffer.name] = {.shape = buffer.shape};
  }
  return places;
}

// The first differences, and how many there are in all.
class Differences {
 public:
  Differences(const ModelSource& source, StoredPart part) : source_(source), part_(part) {}

  void AddMissing(std::string_view tensor, DimsView shape) {
    if (part_ != StoredPart::kMoment) {
      Add(ErrorKind::kMissing, "a tensor of the run's model is missing", tensor, FormatDims(shape));
      return;
    }
    if (count_ == 0) {
      hint_ = fmt::format(
          "it is frozen in the source, and stays so with --set frozen={}; for several, --set "
          "'frozen=[\"embedding.*\"]' takes patterns",
          tensor);
    }
    Add(ErrorKind::kMissing,
        "the source's optimizer keeps nothing for a parameter that the run trains", tensor,
        FormatDims(shape));
  }

  void AddRounded(const TargetTensor& tensor, DType stored) {
    if (count_ == 0) hint_ = "--set finetune=true takes the weights alone, and rounds them";
    Add(ErrorKind::kDtypeMismatch,
        part_ == StoredPart::kMoment
            ? "the trainer would round what the optimizer keeps for this tensor"
            : "the trainer would round this tensor",
        tensor.key, DTypeName(kLoadedDtype), DTypeName(stored));
  }

  void Add(ErrorKind kind, std::string_view what, std::string_view tensor,
           std::string_view expected = {}, std::string_view actual = {}) {
    if (++count_ > kMostListed) return;
    status_.Add(Error(kind, what)
                    .File(source_.checkpoint->path.string())
                    .Tensor(tensor)
                    .Expected(expected)
                    .Actual(actual));
  }

  Status Take() {
    if (count_ > kMostListed) {
      status_.Add(Error(ErrorKind::kUnmapped,
                        fmt::format("{} more tensors do not fit", count_ - kMostListed)));
    }
    return std::move(status_).Hint(hint_);
  }

 private:
  const ModelSource& source_;
  StoredPart part_;
  Status status_;
  std::string hint_ = "leave out settings that change the source's model";  // of the first
  std::size_t count_ = 0;
};

}  // namespace

Status CheckFits(const ModelSource& source, const ModelView& view,
                 const trainer::TrainConfig& config, StoredPart part) {
  const Places places = PlacesOf(config, part);
  Differences differences(source, part);
  std::set<std::string, std::less<>> present;
  for (std::size_t t = 0; t < view.tensors.size(); ++t) {
    const TargetTensor& tensor = view.tensors[t];
    present.insert(tensor.key);
    const auto place = places.find(tensor.key);
    if (place == places.end()) {
      differences.Add(ErrorKind::kUnmapped, "the run's model has no place for this tensor",
                      tensor.key, {}, FormatDims(tensor.shape));
    } else if (place->second.shape != tensor.shape) {
      differences.Add(ErrorKind::kShapeMismatch,
                      "the tensor has a different shape in the run's model", tensor.key,
                      FormatDims(place->second.shape), FormatDims(tensor.shape));
    } else if (part != StoredPart::kWeightsAlone && IsRounded(view.recipes[t])) {
      differences.AddRounded(tensor, view.recipes[t].source_dtype);
    }
  }
  for (const auto& [name, place] : places) {
    if (place.is_needed && !present.contains(name)) differences.AddMissing(name, place.shape);
  }
  CKPT_RETURN_IF_ERROR(differences.Take());
  // The trainer reads only one of two tied tensors, and of what the optimizer keeps for them. The
  // other must be equal, or its values would be lost without notice.
  constexpr std::uint64_t kBudgetBytes = 64 * kMiB;
  return CheckCopies(source, kBudgetBytes);
}

std::string DescribeRounding(const ModelSource& source, const ModelView& view) {
  std::size_t count = 0;
  std::string first;
  for (std::size_t t = 0; t < view.tensors.size(); ++t) {
    const TensorRecipe& recipe = view.recipes[t];
    if (!IsRounded(recipe) || ++count > 1) continue;
    first = fmt::format("{} of {}", view.tensors[t].key, DTypeName(recipe.source_dtype));
  }
  if (count == 0) return "";
  return fmt::format("{}: {} of {} tensors are rounded to the trainer's {}; the first is {}",
                     source.checkpoint->path.string(), count, view.tensors.size(),
                     DTypeName(kLoadedDtype), first);
}

}  // namespace ckpt::train
