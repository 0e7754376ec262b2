#include "converters/verbs/internal/model_configuration.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "converters/config/hf_config.h"
#include "converters/config/megatron_args.h"
#include "core/layout/find_value.h"
#include "core/layout/flatten_json.h"
#include "core/manifest/read_manifest.h"
#include "formats/registry/stored_run.h"

namespace ckpt {
namespace {

Result<bool> Exists(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  return stat.type != FileType::kMissing;
}

// The arguments of the run describe its shape. A config.json with another grouping of the heads can
// have the same tensor shapes, and would then permute rows without an error.
Status CheckAgainstArgs(const layout::Configuration& config, const layout::Configuration& args,
                        const std::string& file) {
  const Result<layout::Configuration> run = ShapeFromMegatronArgs(args);
  if (!run.ok()) return OkStatus();  // too few of them to say anything
  const std::optional<std::int64_t> hidden = layout::FindInt(config, "hidden_size");
  const bool same_hidden = hidden == layout::FindInt(*run, "hidden_size");
  const std::optional<std::int64_t> heads = layout::FindInt(config, "num_attention_heads");
  Status status;
  for (const char* name : {"num_hidden_layers", "hidden_size", "num_attention_heads",
                           "num_key_value_heads", "head_dim", "vocab_size", "kv_lora_rank",
                           "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
    std::optional<std::int64_t> said = layout::FindInt(config, name);
    const std::optional<std::int64_t> stored = layout::FindInt(*run, name);
    const std::string_view key = name;
    if (!said && key == "num_key_value_heads") said = heads;
    // If the hidden size differs, values that follow from it are not reported again.
    if (!said && key == "head_dim" && same_hidden && hidden && heads && *heads > 0) {
      said = *hidden / *heads;
    }
    // A published vocabulary may have more rows than the run's tokenizer has words. It cannot have
    // fewer.
    const bool agrees =
        !said || !stored || *said == *stored || (key == "vocab_size" && *said > *stored);
    if (agrees) continue;
    status.Add(Error(ErrorKind::kValueMismatch,
                     fmt::format("config.json contradicts the run's own arguments: {}", name))
                   .File(file)
                   .Expected(std::to_string(*stored))
                   .Actual(std::to_string(*said)));
  }
  return status;
}

}  // namespace

Result<Path> FindAssets(Storage& storage, const OpenedCheckpoint& checkpoint, const Path& given) {
  if (!given.empty()) {
    CKPT_ASSIGN_OR_RETURN(const bool exists, Exists(storage, given / kHfConfigName.data()));
    if (!exists) {
      return Error(ErrorKind::kNotFound, "the assets have no config.json").File(given.string());
    }
    return given;
  }
  CKPT_ASSIGN_OR_RETURN(const Path directory, ManifestDirectory(storage, checkpoint.path));
  const std::string_view folder = checkpoint.format->assets_directory;
  const Path inside = folder.empty() ? directory : directory / std::string(folder);
  for (const Path& candidate : {inside, directory}) {
    CKPT_ASSIGN_OR_RETURN(const bool exists, Exists(storage, candidate / kHfConfigName.data()));
    if (exists) return candidate;
  }
  return Path();
}

Result<layout::Configuration> ArgsOfRun(const ModelSource& model) {
  Result<layout::Configuration> args = ReadRunArgs(*model.checkpoint);
  const bool are_lost = !args.ok() && args.status().kind() == ErrorKind::kMissingFile;
  if (are_lost && !model.assets.empty()) return layout::Configuration();
  return args;
}

Status ReadConfiguration(Storage& storage, const OpenModelOptions& options, ModelSource& model) {
  CKPT_ASSIGN_OR_RETURN(model.assets, FindAssets(storage, *model.checkpoint, options.assets));
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration args, ArgsOfRun(model));
  if (!model.assets.empty()) {
    const Path path = model.assets / kHfConfigName.data();
    CKPT_RETURN_IF_ERROR(CheckFetched(storage, model.assets, {std::string(kHfConfigName)}));
    CKPT_ASSIGN_OR_RETURN(const std::string json, ReadSmallFile(storage, path, kMaxHfConfigBytes));
    CKPT_ASSIGN_OR_RETURN(model.config, ParseHfConfig(json, path.string(), options.model_type));
    if (!options.mapping.empty()) {
      CKPT_ASSIGN_OR_RETURN(model.ignored, layout::FlattenJson(json, path.string()));
      std::erase_if(model.ignored,
                    [&](const auto& entry) { return model.config.contains(entry.first); });
    }
    if (!args.empty()) CKPT_RETURN_IF_ERROR(CheckAgainstArgs(model.config, args, path.string()));
    // The published configuration does not say how far the run padded the vocabulary.
    const auto padded = args.find("padded_vocab_size");
    if (padded != args.end() && !padded->second.is_null()) model.config.insert(*padded);
  } else if (!args.empty()) {
    CKPT_ASSIGN_OR_RETURN(model.config, ConfigFromMegatronArgs(args));
    model.is_family_guessed = options.model_type.empty() && options.mapping.empty();
  } else if (!options.config.empty()) {
    model.config = options.config;
  } else {
    return Error(ErrorKind::kNotFound, "no config.json says what model this is")
        .File(model.checkpoint->path.string())
        .Actual(fmt::format("a {} checkpoint alone", model.checkpoint->format->name))
        .Hint(
            "copy the model's config.json into the checkpoint's directory; ckpt-convert, "
            "ckpt-inspect digest, plan and diff also take it from another one, with --hf-assets "
            "DIR");
  }
  DescribeForm(args, model.config);
  if (!options.model_type.empty()) model.config["model_type"] = options.model_type;
  if (options.with_vocabulary_padding) CountVocabularyPadding(model.config);
  return OkStatus();
}

void DescribeForm(const layout::Configuration& args, layout::Configuration& config) {
  const auto impl = args.find("transformer_impl");
  if (impl != args.end() && impl->second.AsText() != nullptr) config.insert(*impl);
  const auto freq = args.find("moe_layer_freq");
  if (freq != args.end() && freq->second.AsList() != nullptr) {
    config.insert({"layer_keys", layout::Value("per_layer")});
  }
}

void CountVocabularyPadding(layout::Configuration& config) {
  const auto padded = config.find("padded_vocab_size");
  if (padded != config.end() && !padded->second.is_null()) config["vocab_size"] = padded->second;
}

void PadVocabulary(std::int64_t rows, layout::Configuration& config) {
  const std::optional<std::int64_t> tokens = layout::FindInt(config, "vocab_size");
  if (tokens && rows > *tokens) config["padded_vocab_size"] = rows;
}

}  // namespace ckpt
