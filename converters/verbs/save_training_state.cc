#include "converters/verbs/save_training_state.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "converters/families/known_namings.h"
#include "converters/verbs/model_source.h"
#include "core/layout/affine.h"
#include "core/layout/find_value.h"
#include "core/plan/cut_items.h"
#include "core/plan/plan_check.h"
#include "core/plan/plan_recipes.h"
#include "core/tensor/box.h"
#include "core/training/run_format.h"
#include "formats/registry/stored_run.h"

namespace ckpt {
namespace {

// Which of a model's tensors must be there.
enum class Needed : std::uint8_t { kAll, kThoseInTraining };

// The tensors whose keys start with `prefix`, each under the name of the weight to which it
// belongs.
Result<ModelSource> TakeForModel(const std::shared_ptr<const OpenedCheckpoint>& checkpoint,
                                 const layout::Configuration& config, const std::string& prefix,
                                 Needed needed) {
  OpenModelOptions options;
  options.naming = kTrainerNaming;
  options.allow_missing = needed == Needed::kThoseInTraining;
  for (const GlobalTensor& tensor : checkpoint->source->index().tensors()) {
    if (tensor.key.starts_with(prefix)) {
      options.take_as[tensor.key] = tensor.key.substr(prefix.size());
    }
  }
  return MatchModel(checkpoint, config, options);
}

// Whether weight decay applies to the parts of the tensor. `prefix` is that of the parts' keys in
// the source.
bool Decays(const TensorRecipe& recipe, const CheckpointIndex& source, const std::string& prefix,
            const std::set<std::string>& decayed) {
  return std::ranges::any_of(recipe.nests, [&](const layout::Nest& nest) {
    return !nest.is_zero_fill() &&
           decayed.contains(source.tensors()[nest.source].key.substr(prefix.size()));
  });
}

class Planner {
 public:
  Planner(const StateInMemory& state, const layout::Configuration& model, SaveTarget target)
      : state_(state),
        model_(model),
        form_(FormOfRun(*target.format)),
        checkpoint_(std::make_shared<OpenedCheckpoint>()) {
    checkpoint_->source = state.source;
    saved_.target = std::move(target);
  }

  Result<SavedTensors> Plan() && {
    const RunFormat* const of_run = form_.run;
    CKPT_RETURN_IF_ERROR(AddWeights(of_run));
    if (of_run != nullptr) {
      for (std::size_t m = 0; m < state_.moments.size(); ++m) {
        CKPT_RETURN_IF_ERROR(AddMoment(*of_run, m));
      }
      if (of_run->main_weight_key != nullptr) CKPT_RETURN_IF_ERROR(AddMainWeights(*of_run));
      AddRunTensors();
    }
    const CheckpointIndex& index = state_.source->index();
    CKPT_RETURN_IF_ERROR(CheckRecipes(saved_.tensors, saved_.recipes, index));
    for (std::size_t t = 0; t < saved_.tensors.size(); ++t) {
      CKPT_ASSIGN_OR_RETURN(saved_.placed.emplace_back(),
                            FollowChunks(saved_.tensors[t], saved_.recipes[t], index));
    }
    return std::move(saved_);
  }

 private:
  // Names of the target. Formats that give the keys of a run a prefix of their own get names
  // without one.
  Result<ModelView> View(const std::string& prefix, Needed needed) {
    CKPT_ASSIGN_OR_RETURN(const ModelSource model,
                          TakeForModel(checkpoint_, model_, prefix, needed));
    saved_.family = model.family->name;
    const std::string naming(form_.usual_naming);
    layout::Choices choices;
    if (const layout::Naming* const declared = model.family->FindNaming(naming)) {
      for (const layout::Choice& choice : declared->choices) {
        const auto asked = saved_.target.choices.find(choice.name);
        if (asked != saved_.target.choices.end()) {
          choices.insert(*asked);
        } else if (const std::string* const said = layout::FindText(model_, choice.name)) {
          choices[choice.name] = *said;
        }
      }
    }
    return ViewModel(model, naming, choices);
  }

  void Add(TargetTensor tensor, TensorRecipe recipe) {
    saved_.tensors.push_back(std::move(tensor));
    saved_.recipes.push_back(std::move(recipe));
  }

  Status AddWeights(const RunFormat* of_run) {
    CKPT_ASSIGN_OR_RETURN(ModelView view, View(state_.weights, Needed::kAll));
    for (const layout::ResolvedObject& object : view.layout.objects) {
      saved_.objects.push_back({.key = view.layout.prefix + object.name, .grid = object.grid});
    }
    for (std::size_t t = 0; t < view.tensors.size(); ++t) {
      // Most readers need no copy.
      if (view.derived[t] && !form_.writes_copies) continue;
      TargetTensor& tensor = view.tensors[t];
      if (of_run != nullptr) {
        tensor.key = of_run->weight_key(tensor.key.substr(view.layout.prefix.size()));
      }
      Add(std::move(tensor), std::move(view.recipes[t]));
    }
    return OkStatus();
  }

  Status AddMoment(const RunFormat& of_run, std::size_t moment) {
    const std::string& prefix = state_.moments[moment];
    CKPT_ASSIGN_OR_RETURN(ModelView view, View(prefix, Needed::kThoseInTraining));
    for (std::size_t t = 0; t < view.tensors.size(); ++t) {
      if (view.derived[t]) continue;  // the optimizer knows one of them
      TargetTensor& tensor = view.tensors[t];
      const std::string name = tensor.key.substr(view.layout.prefix.size());
      saved_.decays[name] = Decays(view.recipes[t], state_.source->index(), prefix, state_.decayed);
      tensor.key = of_run.moment_key(name, state_.moment_names[moment]);
      Add(std::move(tensor), std::move(view.recipes[t]));
    }
    return OkStatus();
  }

  // The exact values once more, of what the optimizer updates.
  Status AddMainWeights(const RunFormat& of_run) {
    CKPT_ASSIGN_OR_RETURN(ModelView view, View(state_.weights, Needed::kAll));
    for (std::size_t t = 0; t < view.tensors.size(); ++t) {
      TargetTensor& tensor = view.tensors[t];
      const std::string name = tensor.key.substr(view.layout.prefix.size());
      if (view.derived[t] || !saved_.decays.contains(name)) continue;
      tensor.key = of_run.main_weight_key(name, saved_.target.forms);
      Add(std::move(tensor), std::move(view.recipes[t]));
    }
    return OkStatus();
  }

  void AddRunTensors() {
    const CheckpointIndex& index = state_.source->index();
    for (std::uint32_t i = 0; i < index.tensors().size(); ++i) {
      const GlobalTensor& tensor = index.tensors()[i];
      if (!tensor.key.starts_with(state_.run)) continue;
      Add({.key = tensor.key.substr(state_.run.size()),
           .dtype = tensor.dtype,
           .shape = tensor.shape},
          {.nests = {layout::IdentityNest(i, tensor.shape)}, .source_dtype = tensor.dtype});
    }
  }

  const StateInMemory& state_;
  const layout::Configuration& model_;
  const Format& form_;  // of the run
  const std::shared_ptr<OpenedCheckpoint> checkpoint_;
  SavedTensors saved_;
};

using RowsByKey = std::map<std::string, std::vector<RowsFromFile>>;

// Plans every file for a format that knows nothing of runs: it holds weights alone, or tensors and
// objects of any names. Each block of rows is one item.
Result<WritePlan> PlanAnyTensors(const SavedTensors& saved, TrainingRun run, CarriedFiles files,
                                 const RowsByKey& rows) {
  const Format& format = *saved.target.format;
  WeightsRequest request;
  request.tensors = saved.tensors;
  request.file_name = format.file_in_directory;
  request.is_shared = true;
  CarriedFiles beside;
  if (format.is_one_file) {
    for (WriteCopy& copy : files.copies) {
      copy.name = fmt::format("{}/{}", format.assets_directory, copy.name);
    }
    beside = std::exchange(files, {});
  }
  request.side_files = std::move(files.copies);
  request.side_texts = std::move(files.texts);
  const Format& form = FormOfRun(format);
  if (form.run != nullptr) request.forms = saved.target.forms;
  CKPT_ASSIGN_OR_RETURN(PlannedCheckpoint created,
                        form.run == nullptr ? PlanWeights(format, std::move(request))
                                            : PlanEntriesOfRun(form, {.run = std::move(run)},
                                                               format, std::move(request)));
  std::ranges::move(beside.copies, std::back_inserter(created.plan.copies));
  AddSideTexts(format, "", beside.texts, created.plan);
  CKPT_RETURN_IF_ERROR(CutItems(rows, created.plan));
  return std::move(created.plan);
}

// The items of a tensor are its blocks of rows, or parts of these, in order.
std::vector<int> WritersOf(const WritePlan& plan, const RowsByKey& rows) {
  std::vector<int> writers;
  std::vector<std::size_t> current(plan.tensors.size(), 0);
  for (const WriteItem& item : plan.items) {
    const std::vector<RowsFromFile>& blocks = rows.at(plan.tensors[item.tensor].key);
    const auto has_item = [&](const RowsFromFile& block) {
      return block.box == item.box || Intersect(block.box, item.box) == item.box;
    };
    std::size_t& at = current[item.tensor];
    while (!has_item(blocks.at(at))) ++at;
    writers.push_back(static_cast<int>(blocks[at].file));
  }
  return writers;
}

}  // namespace

Result<SavedTensors> PlanSavedTensors(const StateInMemory& state,
                                      const layout::Configuration& model, SaveTarget target) {
  return Planner(state, model, std::move(target)).Plan();
}

Result<TrainingSave> PlanTrainingSave(const SavedTensors& saved, TrainingRun run,
                                      CarriedFiles files) {
  RowsByKey rows;
  for (std::size_t t = 0; t < saved.tensors.size(); ++t) {
    rows[saved.tensors[t].key] = saved.placed[t];
  }
  TrainingSave save;
  const RunFormat* const of_run = FormOfRun(*saved.target.format).run;
  if (of_run != nullptr) {
    for (auto& [name, value] : run.args) {
      if (name == "ckpt_format") value = layout::Value(std::string(saved.target.format->name));
    }
    run.group_of.clear();
    if (!run.groups.empty()) {
      for (const auto& [name, decays] : saved.decays) {
        run.group_of.emplace_back(name, decays ? 0 : run.groups.size() - 1);
      }
    }
  }
  if (const RunFormat* const own = saved.target.format->run; own != nullptr) {
    CKPT_ASSIGN_OR_RETURN(save.plan.write, own->plan({.tensors = saved.tensors,
                                                      .placed = saved.placed,
                                                      .run = std::move(run),
                                                      .side_files = std::move(files.copies),
                                                      .objects = saved.objects,
                                                      .forms = saved.target.forms}));
    AddSideTexts(*saved.target.format, "", files.texts, save.plan.write);
  } else {
    CKPT_ASSIGN_OR_RETURN(save.plan.write,
                          PlanAnyTensors(saved, std::move(run), std::move(files), rows));
  }
  save.writers = WritersOf(save.plan.write, rows);
  CKPT_ASSIGN_OR_RETURN(save.plan.recipes,
                        RecipesOfPlan(save.plan.write, saved.tensors, saved.recipes));
  CKPT_RETURN_IF_ERROR(CheckWritePlan(save.plan.write));
  return save;
}

}  // namespace ckpt
