#include "trainer/run/run_config.h"

#include <string>
#include <string_view>
#include <utility>

#include "converters/config/hf_config.h"
#include "converters/config/model_settings.h"
#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "formats/registry/locate.h"
#include "formats/registry/stored_run.h"
#include "trainer/model/settings_reader.h"
#include "trainer/run/checkpoint_settings.h"
#include "trainer/run/format_settings.h"
#include "trainer/run/internal/stored_run.h"
#include "trainer/run/internal/stored_settings.h"
#include "trainer/step/parse_train_config.h"

namespace ckpt::train {
namespace {

constexpr std::string_view kHfPrefix = "hf:";
constexpr std::string_view kRandom = "random";

// The repository of `named`: the folder itself, or the revision that the hub's cache holds for it.
Result<Path> FindRepository(Storage& storage, const Path& named) {
  CKPT_ASSIGN_OR_RETURN(const CheckpointLocation found,
                        LocateCheckpoint(storage, named, std::nullopt));
  const Path config = found.path / std::string(kHfConfigName);
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(config));
  if (found.is_directory && stat.type != FileType::kMissing) return found.path;
  return Error(ErrorKind::kNotFound, "init does not name a Hugging Face repository")
      .File(named.string())
      .Expected("a folder with config.json beside the weights")
      .Hint("--load takes the checkpoints of runs, and conversions with --set finetune=true");
}

Result<layout::Configuration> ReadModelSettings(Storage& storage, const Path& directory) {
  const Path path = directory / std::string(kHfConfigName);
  CKPT_ASSIGN_OR_RETURN(const std::string json, ReadSmallFile(storage, path, kMaxHfConfigBytes));
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration config, ParseHfConfig(json, path.string()));
  return ModelSettings(config);
}

// A folder without checkpoints is probably a typing error, unless a run starts there.
Status CheckMayStart(const CheckpointSettings& checkpoints, const RunNeeds& needs) {
  const bool starts_there = !needs.weights && !checkpoints.finetune && !checkpoints.save.empty() &&
                            CanonicalPath(checkpoints.load) == CanonicalPath(checkpoints.save);
  if (starts_there) return OkStatus();
  return Error(ErrorKind::kNotFound, "there is no checkpoint to load")
      .File(checkpoints.load.string())
      .Expected("a folder of checkpoints, or one checkpoint")
      .Hint(needs.weights || checkpoints.finetune
                ? "name a folder that holds one"
                : "to start a run there, and to resume it later, set save to the same folder");
}

// What a run reads of the checkpoint in `load`.
LoadedPart PartOf(const CheckpointSettings& checkpoints, const RunNeeds& needs) {
  if (checkpoints.finetune) return LoadedPart::kWeights;
  return needs.weights ? LoadedPart::kRunOrWeights : LoadedPart::kRun;
}

// If `load` holds a checkpoint: opens it for `run`, and returns its settings.
Result<layout::Configuration> GoOnFromStored(Storage& storage, const RunNeeds& needs,
                                             const layout::Configuration& given, RunConfig& run) {
  layout::Configuration stored;
  trainer::SettingsReader reader(given);
  const CheckpointSettings checkpoints = ReadCheckpointSettings(reader);
  // Errors in these settings are reported later, with all others.
  if (!reader.ok() || checkpoints.load.empty()) return stored;
  CKPT_ASSIGN_OR_RETURN(StatePtr state,
                        OpenNewestRun(storage, checkpoints.load, PartOf(checkpoints, needs)));
  if (!state) {
    CKPT_RETURN_IF_ERROR(CheckMayStart(checkpoints, needs));
    return stored;
  }
  const bool weights_only = checkpoints.finetune || !IsWholeRun(*state);
  Result<layout::Configuration> of_run = StoredSettings(*state, weights_only);
  if (!of_run.ok()) {
    return std::move(of_run).status().While(GoingOnFrom(state->weights.checkpoint->path));
  }
  stored = *std::move(of_run);
  if (!weights_only) CKPT_RETURN_IF_ERROR(CheckKeepsModel(stored, given));
  run.stored = std::make_shared<OpenedRun>(std::move(state));
  return stored;
}

// The given settings that differ from those that they override.
layout::Configuration NewsIn(layout::Configuration given, const layout::Configuration& under) {
  std::erase_if(given, [&](const auto& setting) {
    const auto said = under.find(setting.first);
    return said != under.end() && said->second == setting.second;
  });
  return given;
}

// A resumed run keeps its id. Other settings make another run, except for those of its length.
std::string RunIdOf(const RunConfig& run) {
  constexpr std::size_t kDigits = 16;
  const StatePtr stored = run.stored ? run.stored->state() : nullptr;
  if (stored && stored->facts.run_id) return *stored->facts.run_id;
  layout::Configuration settings = run.effective;
  const auto decay = settings.find("lr_decay_iters");
  const auto iters = settings.find("train_iters");
  const bool is_as_long =
      decay != settings.end() && iters != settings.end() && decay->second == iters->second;
  if (is_as_long) settings.erase(decay);  // its default
  for (const char* length : {"train_iters", "exit_interval"}) settings.erase(length);
  return HashHex(HashAlgorithm::kXxh3, AsBytes(FormatSettings(settings))).substr(0, kDigits);
}

// Refuses settings that have no effect in training. Other verbs ignore settings that only training
// reads.
void RefuseIdleSettings(const CheckpointSettings& checkpoints, const RunConfig& run,
                        const RunNeeds& needs, trainer::SettingsReader& settings) {
  // With an invalid setting, the configuration holds a default in its place, which cannot show what
  // else has no effect.
  if (!settings.ok()) return;
  settings.RefuseIdle(checkpoints.save.empty(), "without save",
                      {"save_interval", "save_format", "async_save", "keep_checkpoints",
                       "save_proof", "transformer_impl", "expert_names"});
  for (const std::string& form : FormSettings(*checkpoints.save_format)) {
    settings.RefuseIdle(checkpoints.save.empty(), "without save", {form});
  }
  settings.RefuseIdle(FormOfRun(*checkpoints.save_format).run == nullptr,
                      "with save_format=" + std::string(checkpoints.save_format->name),
                      {"save_proof", "transformer_impl", "expert_names"});
  settings.RefuseIdle(!settings.Has("num_experts"), "without num_experts", {"expert_names"});
  settings.RefuseIdle(checkpoints.load.empty(), "without load",
                      {"finetune", "prove", "restart_data"});
  settings.RefuseIdle(checkpoints.finetune,
                      "with finetune, which starts the data at the first sample", {"restart_data"});
  settings.RefuseIdle(!run.data.asks_for_document_ends(),
                      "without eod_mask_loss, reset_position_ids and reset_attention_mask",
                      {"eod_token"});
  settings.RefuseIdle(run.data.valid_data_path.empty(), "without valid_data_path",
                      {"eval_interval", "eval_iters"});
  settings.RefuseIdle(needs.one_process && !settings.TakeWord("gpu_collectives", "nccl"),
                      "where the ranks are threads of one process",
                      {"distributed_timeout_minutes"});
  settings.RefuseIdle(run.loop.eval_interval == 0, "with eval_interval=0",
                      {"eval_iters", "valid_data_path"});
  // The settings that started a run also resume it: what it stored is not news.
  settings.RefuseIdle(run.init_from.has_value(), "where init names weights", {"init_method_std"});
  settings.RefuseIdle(run.goes_on(), "where load holds weights", {"init_method_std"});
}

void CheckNeeds(const RunConfig& run, const RunNeeds& needs, trainer::SettingsReader& settings) {
  // A setting of the wrong type was refused already, and is not reported as missing too.
  const auto lacks = [&](const char* name, const layout::Value& nothing) {
    return settings.effective().at(name) == nothing;
  };
  const bool has_data = !run.data.data_path.empty();
  if (needs.training && lacks("train_iters", 0)) settings.Refuse("train_iters", "is missing");
  if (needs.training && lacks("data_path", "")) settings.Refuse("data_path", "is missing");
  if (needs.evaluation && !has_data && run.data.valid_data_path.empty()) {
    settings.Refuse("valid_data_path", "is missing");
  }
}

}  // namespace

Result<std::optional<Path>> InitSource(const layout::Configuration& settings) {
  const auto found = settings.find("init");
  if (found == settings.end() || found->second.is_null()) return std::optional<Path>();
  const std::string* const text = found->second.AsText();
  if (text != nullptr && *text == kRandom) return std::optional<Path>();
  if (text != nullptr && text->starts_with(kHfPrefix) && text->size() > kHfPrefix.size()) {
    return std::optional<Path>(text->substr(kHfPrefix.size()));
  }
  return Error(ErrorKind::kUsage, "setting init is not a source of weights")
      .Expected("random or hf:DIR")
      .Actual(layout::FormatValue(found->second));
}

Result<RunConfig> ResolveRun(Storage& storage, const layout::Configuration& given, int num_ranks,
                             const RunNeeds& needs) {
  RunConfig run;
  CKPT_ASSIGN_OR_RETURN(layout::Configuration under, GoOnFromStored(storage, needs, given, run));
  CKPT_ASSIGN_OR_RETURN(const std::optional<Path> init, InitSource(given));
  (run.goes_on() ? run.idle_init : run.init_from) = init;
  if (run.init_from) {
    CKPT_ASSIGN_OR_RETURN(run.init_from, FindRepository(storage, *run.init_from));
    CKPT_ASSIGN_OR_RETURN(under, ReadModelSettings(storage, *run.init_from));
  }
  if (under.empty()) under = needs.model;
  layout::Configuration all = given;
  all.insert(under.begin(), under.end());  // given settings have priority
  const layout::Configuration news = NewsIn(given, under);
  trainer::SettingsReader settings(all, &news);
  settings.Text("init", kRandom);
  const CheckpointSettings checkpoints = ReadCheckpointSettings(settings);
  if (checkpoints.load == checkpoints.save) run.idle_init.reset();
  run.loop = ReadLoopSettings(settings);
  run.data = ReadDataSettings(settings);
  const Path assets = run.stored      ? run.stored->state()->weights.assets
                      : run.init_from ? *run.init_from
                                      : Path();
  CKPT_ASSIGN_OR_RETURN(run.data.tokenizer, FindTokenizer(storage, assets));
  CheckNeeds(run, needs, settings);
  if (needs.training) RefuseIdleSettings(checkpoints, run, needs, settings);
  CKPT_ASSIGN_OR_RETURN(run.train, trainer::ParseTrainConfig(settings, num_ranks));
  CKPT_RETURN_IF_ERROR(CheckTokensOf(run.data, run.train.model.vocab_size));
  run.effective = settings.effective();
  run.run_id = RunIdOf(run);
  return run;
}

}  // namespace ckpt::train
