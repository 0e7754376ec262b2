#include "formats/torch_save/format.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/name_list.h"
#include "core/base/text_number.h"
#include "formats/torch_save/carried_object.h"
#include "formats/torch_save/internal/writer.h"
#include "formats/torch_save/torch_repository.h"
#include "formats/torch_save/torch_save_source.h"

namespace ckpt::torch_save {
namespace {

Status Unsupported(std::string_view what, const Path& path, std::string_view hint) {
  return Error(ErrorKind::kUnsupported, what).File(path.string()).Hint(hint);
}

constexpr std::string_view kSaveByDcp =
    "save with use_dcp, or with FULL_STATE_DICT, which makes one file";

// Regular files that torch.save usually makes.
std::vector<std::string> TorchFiles(const DirectoryNames& names) {
  std::vector<std::string> found;
  for (const DirectoryEntry& entry : names.entries()) {
    const std::string extension = Path(entry.name).extension().string();
    const bool is_torch = extension == ".pt" || extension == ".pth" || extension == ".bin";
    if (is_torch && entry.type == FileType::kRegular) found.push_back(entry.name);
  }
  return found;
}

Status DeepSpeed(std::string_view what, const Path& path) {
  return Unsupported(what, path, "DeepSpeed's zero_to_fp32.py makes a file of it that is read");
}

// With ZeRO the ranks share everything; without it a rank may have saved alone.
bool IsOfDeepSpeed(const std::vector<std::string>& files) {
  return std::ranges::any_of(files, [&](std::string_view name) {
    const bool is_state = name.ends_with("_model_states.pt") || name.ends_with("_optim_states.pt");
    return is_state && (files.size() > 1 || name.find("zero_pp_rank_") != name.npos);
  });
}

// The folder around global_stepN, the newest of which `latest` names.
bool IsAroundDeepSpeed(const DirectoryNames& names) {
  constexpr std::string_view kStep = "global_step";
  return names.Has("latest") &&
         std::ranges::any_of(names.entries(), [&](const DirectoryEntry& entry) {
           const std::string_view name = entry.name;
           return entry.type == FileType::kDirectory && name.starts_with(kStep) &&
                  name.find_first_not_of("0123456789", kStep.size()) == name.npos;
         });
}

// Accelerate's, and so of the Trainer of Transformers.
bool IsAroundShards(const DirectoryNames& names) {
  return std::ranges::any_of(names.entries(), [](const DirectoryEntry& entry) {
    return entry.type == FileType::kDirectory && entry.name.starts_with("pytorch_model_fsdp_");
  });
}

// Accelerate's, where it does not save by DCP: "pytorch_model_fsdp_0_rank1.bin".
bool IsOfAccelerateRank(std::string_view name) {
  const std::size_t rank = name.rfind("_rank");
  return rank != name.npos && name.ends_with(".bin") &&
         (name.starts_with("pytorch_model_fsdp") || name.starts_with("optimizer"));
}

// Folders of trainers whose files together are not one checkpoint, and files of a rank that are
// nothing without the others.
Status RefuseFilesOfRanks(const Place& place) {
  if (!place.is_directory) {
    // ZeRO-3 leaves an empty tensor in place of each parameter.
    const std::string name = place.path.filename().string();
    const bool is_zero3 = name.starts_with("zero_pp_rank_") && name.ends_with("_model_states.pt");
    if (is_zero3) return DeepSpeed("a rank's file of a DeepSpeed checkpoint", place.path);
    if (!IsOfAccelerateRank(name)) return OkStatus();
    return Unsupported("a rank's file of Accelerate, which has its parts of tensors alone",
                       place.path, std::string(kSaveByDcp));
  }
  if (place.names.Has("ckpt_contents.json")) {
    return Unsupported("a verl checkpoint around Megatron ones", place.path,
                       "open one of its dist_ckpt folders");
  }
  return OkStatus();
}

Result<std::optional<Path>> RecogniseDirectory(const Place& place) {
  if (place.names.Has(kTorchWeightsName)) {
    return std::optional(place.path / kTorchWeightsName.data());
  }
  if (place.names.Has(kTorchIndexName)) return std::optional(place.path);
  if (place.names.Has(kTorchAdapterName)) {
    return std::optional(place.path / kTorchAdapterName.data());
  }
  const std::vector<std::string> files = TorchFiles(place.names);
  const auto list = [&] { return fmt::format("{}", fmt::join(files, ", ")); };
  if (std::ranges::any_of(files, &IsOfAccelerateRank)) {
    return Unsupported("files of ranks, as Accelerate saves them without DCP", place.path,
                       std::string(kSaveByDcp))
        .Actual(list());
  }
  if (IsOfDeepSpeed(files) || IsAroundDeepSpeed(place.names)) {
    return DeepSpeed("a DeepSpeed checkpoint", place.path);
  }
  if (IsAroundShards(place.names)) {
    return Unsupported("the folder of a trainer around sharded checkpoints", place.path,
                       "open pytorch_model_fsdp_0/, the model, or optimizer_0/");
  }
  if (place.names.HasAffixes("pytorch_model-00", ".bin")) {
    return Error(ErrorKind::kIncomplete, "shards without the index that names their tensors")
        .File((place.path / kTorchIndexName.data()).string())
        .Actual(list())
        .Hint("fetch the index, or open the shards one by one");
  }
  if (files.size() > 1) {
    return Unsupported("several torch.save files", place.path, "open them one by one")
        .Actual(list());
  }
  return files.empty() ? std::nullopt : std::optional(place.path / files.front());
}

// A folder of Lightning: each file is a checkpoint, however many there are.
Status ExplainLightning(const Place& place) {
  std::vector<std::string> files;
  for (const DirectoryEntry& entry : place.names.entries()) {
    const bool is_one = entry.type == FileType::kRegular && entry.name.ends_with(".ckpt");
    if (is_one) files.push_back((place.path / entry.name).string());
  }
  if (files.empty()) return OkStatus();
  return Unsupported("a folder of .ckpt files, each of which is a checkpoint", place.path,
                     fmt::format("open {}{}", files.size() == 1 ? "" : "one of ", NameSome(files)));
}

// What the Trainer of Transformers calls its `output_dir`, where nothing but its saves is in it.
Status ExplainTrainer(const Place& place) {
  std::optional<std::int64_t> newest;
  for (const DirectoryEntry& entry : place.names.entries()) {
    std::string_view number = entry.name;
    const bool is_save = entry.type == FileType::kDirectory && TakePrefix("checkpoint-", number);
    if (is_save) newest = std::max(newest, ParseNumber<std::int64_t>(number));
  }
  if (!newest) return OkStatus();
  const Path save = place.path / fmt::format("checkpoint-{}", *newest);
  return Unsupported("the folder of a trainer around its checkpoints", place.path,
                     fmt::format("open {}, or one before it", save.string()));
}

Status Explain(const Place& place) {
  CKPT_RETURN_IF_ERROR(ExplainLightning(place));
  return ExplainTrainer(place);
}

Result<std::unique_ptr<CheckpointSource>> Open(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const bool is_repository, IsTorchRepository(storage, path));
  return is_repository ? OpenTorchRepository(storage, path) : OpenTorchSave(storage, path);
}

Result<std::shared_ptr<const Manifest>> ReadOwnManifest(const CheckpointSource& source) {
  const auto* const own = dynamic_cast<const TorchSaveSource*>(&source);
  return own == nullptr ? std::shared_ptr<const Manifest>() : own->ReadOrigin();
}

}  // namespace

Result<std::optional<Path>> Recognise(const Place& place) {
  if (place.is_directory) return RecogniseDirectory(place);
  constexpr std::array<std::string_view, 4> kExtensions = {".pt", ".pth", ".bin", ".ckpt"};
  const bool is_torch_name =
      std::ranges::find(kExtensions, place.path.extension().string()) != kExtensions.end();
  // A zip, or a pickle of protocol 2 or later. The reader finds out whether torch wrote it.
  const std::string_view head = AsText(place.head);
  const bool is_ours = is_torch_name || head.starts_with("PK") || head.front() == '\x80';
  return is_ours ? std::optional(place.path) : std::nullopt;
}

constinit const Format kFormat = {.name = "torch_save",
                                  .is_one_file = true,
                                  .holds_objects = true,
                                  .nested_keys = NestedKeys::kTextsAndNumbers,
                                  .keeps_attributes = true,
                                  .directory_signs = "*.pt and *.bin",
                                  .file_signs = "torch.save (zip or legacy)",
                                  .recognise = &Recognise,
                                  .refuse = &RefuseFilesOfRanks,
                                  .explain = &Explain,
                                  .open = &Open,
                                  .plan_weights = &PlanStateDict,
                                  .check_object = &CheckCarried,
                                  .read_manifest = &ReadOwnManifest};

}  // namespace ckpt::torch_save
