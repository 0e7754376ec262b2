#include "formats/megatron/bridge_files.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/checkpoint/add_file.h"
#include "core/checkpoint/copy_index.h"
#include "core/checkpoint/view_source.h"
#include "core/training/run_settings.h"
#include "core/training/stored_values.h"
#include "formats/megatron/internal/run_config.h"
#include "formats/megatron/internal/train_state.h"
#include "formats/megatron/internal/yaml.h"
#include "formats/megatron/plan_root.h"

namespace ckpt::megatron {
namespace {

using layout::Configuration;

// A file that is one object.
struct ObjectFile {
  std::string_view key;
  std::string_view file;
  std::string_view encoding;
  std::uint64_t size_bytes = 0;
  std::string json = {};
};

// A checkpoint with files that are objects beside those of its own.
class WithObjectFiles final : public ViewSource {
 public:
  WithObjectFiles(std::unique_ptr<CheckpointSource> below, std::vector<ObjectFile> files)
      : ViewSource(std::move(below)), own_(std::move(files)) {}

  Status BuildIndex() {
    const CheckpointIndex& stored = below().index();
    IndexBuilder builder;
    BeginCopy(stored, builder);
    for (const GlobalTensor& tensor : stored.tensors()) CopyTensor(stored, tensor, builder);
    CopyObjects(stored, builder);
    for (const ObjectFile& own : own_) {
      builder.AddObject({.key = std::string(own.key),
                         .file = builder.AddFile(own.file),
                         .encoding = builder.AddEncoding(own.encoding),
                         .offset_bytes = 0,
                         .size_bytes = own.size_bytes});
    }
    CKPT_ASSIGN_OR_RETURN(CheckpointIndex index, builder.Build());
    SetIndex(std::move(index));
    return OkStatus();
  }

  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override {
    const auto own = std::ranges::find(own_, object.key, &ObjectFile::key);
    if (own != own_.end()) return RenderedObject{.type = "dict", .json = own->json, .warnings = {}};
    return ViewSource::ReadObject(object);
  }

  Result<std::uint64_t> FileSize(FileId file) const override {
    if (file < below().index().files().size()) return below().FileSize(file);
    const auto own = std::ranges::find(own_, index().files()[file], &ObjectFile::file);
    CKPT_CHECK(own != own_.end());
    return own->size_bytes;
  }

 private:
  const std::vector<ObjectFile> own_;
};

Result<std::string> ReadRunConfig(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage, path, kMaxYamlBytes));
  return YamlToJson(text, path.string());
}

// The file as an object; nothing if it is not there.
Result<std::optional<ObjectFile>> FindObjectFile(Storage& storage, const Path& directory,
                                                 ObjectFile object,
                                                 Result<std::string> (*read)(Storage&,
                                                                             const Path&)) {
  const Path path = directory / std::string(object.file);
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  if (stat.type == FileType::kMissing) return std::optional<ObjectFile>();
  object.size_bytes = stat.size_bytes;
  CKPT_ASSIGN_OR_RETURN(object.json, read(storage, path));
  return std::optional(std::move(object));
}

bool IsOfTokenizer(std::string_view name) {
  constexpr std::array<std::string_view, 7> kBeginnings = {
      "tokenizer", "special_tokens_map.", "added_tokens.", "vocab.",
      "merges.",   "chat_template",       "tekken."};
  return name.find('/') == std::string_view::npos &&
         std::ranges::any_of(
             kBeginnings, [&](std::string_view beginning) { return name.starts_with(beginning); });
}

}  // namespace

Result<std::unique_ptr<CheckpointSource>> WithBridgeFiles(std::unique_ptr<CheckpointSource> source,
                                                          Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(
      std::optional<ObjectFile> config,
      FindObjectFile(storage, directory,
                     {.key = kRunConfigKey, .file = kRunConfigFile, .encoding = "yaml"},
                     &ReadRunConfig));
  CKPT_ASSIGN_OR_RETURN(
      std::optional<ObjectFile> state,
      FindObjectFile(storage, directory,
                     {.key = kTrainStateKey, .file = kTrainStateFile, .encoding = "torch.save"},
                     &ReadTrainState));
  std::vector<ObjectFile> files;
  if (config) files.push_back(*std::move(config));
  if (state) files.push_back(*std::move(state));
  if (files.empty()) return source;
  auto both = std::make_unique<WithObjectFiles>(std::move(source), std::move(files));
  CKPT_RETURN_IF_ERROR(both->BuildIndex());
  return std::unique_ptr<CheckpointSource>(std::move(both));
}

Result<Configuration> ReadBridgeArgs(const CheckpointSource& source) {
  CKPT_ASSIGN_OR_RETURN(const Configuration config, ReadStoredMembers(source, kRunConfigKey, ""));
  CKPT_ASSIGN_OR_RETURN(Configuration args, ArgsOfRunConfig(config, kRunConfigKey));
  if (args.empty()) return args;
  CKPT_ASSIGN_OR_RETURN(const Configuration state, ReadStoredMembers(source, kTrainStateKey, ""));
  for (const std::string_view name :
       {"consumed_train_samples", "skipped_train_samples", "consumed_valid_samples"}) {
    if (const auto found = state.find(name); found != state.end()) args.insert(*found);
  }
  if (const auto found = state.find(kTrainStateOperations); found != state.end()) {
    args[std::string(kOperations)] = found->second;
  }
  return args;
}

void AddBridgeFiles(const TrainingRun& run, const BridgeTree& tree, WritePlan& plan) {
  const std::string directory(tree.directory);
  bool has_tokenizer = false;
  for (const WriteCopy& file : tree.side_files) {
    if (!IsOfTokenizer(file.name)) continue;
    has_tokenizer = true;
    AddCopies({file}, fmt::format("{}{}/", directory, kTokenizerDirectory), plan);
  }
  Bytes config;
  Append(WriteRunConfig(run, {.format = tree.format, .has_tokenizer = has_tokenizer}), config);
  AddFile(directory + std::string(kRunConfigFile), std::move(config), plan);
  AddFile(directory + std::string(kTrainStateFile), WriteTrainState(run), plan);
}

}  // namespace ckpt::megatron
