#include "converters/verbs/side_files.h"

#include <algorithm>
#include <array>
#include <fnmatch.h>
#include <set>
#include <string_view>
#include <utility>

#include "converters/config/config_patch.h"
#include "converters/config/hf_config.h"
#include "converters/quantised/decoded_weights.h"
#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/io/git_lfs_pointer.h"
#include "core/io/staging_name.h"
#include "core/manifest/manifest.h"
#include "formats/registry/registry.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kMaxIndexBytes = kGiB;

enum class Place : std::uint8_t {
  kTop,  // the pattern is of the whole relative name
  // The pattern is of the last part of the name. The file is not in a folder that has weights of
  // its own.
  kFolder,
};

struct PublishedName {
  std::string_view pattern;  // as fnmatch has it; case does not count
  Place place;
};

// The files that a published model has besides its weights.
constexpr std::array kPublishedNames = {
    // Configuration of the model and of its parts.
    PublishedName{"config.json", Place::kTop},
    PublishedName{"configuration.json", Place::kTop},
    PublishedName{"*_config.json", Place::kTop},  // generation_, preprocessor_, processor_, …
    PublishedName{"config_*.json", Place::kTop},
    PublishedName{"params.json", Place::kTop},
    PublishedName{"modules.json", Place::kTop},
    PublishedName{"*_pooling/config.json", Place::kTop},
    PublishedName{"original/params.json", Place::kTop},
    PublishedName{"inference/configs/*.json", Place::kTop},
    // The index of tensors and files. The writer of the target decides whether it is still right.
    PublishedName{"*.safetensors.index.json", Place::kTop},
    // Tokenizer.
    PublishedName{"tokenizer*.json", Place::kTop},
    PublishedName{"special_tokens_map.json", Place::kTop},
    PublishedName{"added_tokens.json", Place::kTop},
    PublishedName{"normalizer.json", Place::kTop},
    PublishedName{"tekken.json", Place::kTop},
    PublishedName{"vocab*", Place::kTop},
    PublishedName{"merges*.txt", Place::kTop},
    PublishedName{"*.model", Place::kTop},
    PublishedName{"tokenizer.model.*", Place::kTop},
    PublishedName{"original/tokenizer.model", Place::kTop},
    PublishedName{"*.tiktoken", Place::kTop},
    PublishedName{"*.spm", Place::kTop},
    PublishedName{"*.bpe", Place::kTop},
    PublishedName{"bpe.codes", Place::kTop},
    PublishedName{"dict.txt", Place::kTop},
    // Chat templates: chat_template.json, chat_template.jinja, additional_chat_templates/*.jinja.
    PublishedName{"chat_template*", Place::kTop},
    PublishedName{"*.jinja", Place::kFolder},
    // Documents.
    PublishedName{"license*", Place::kFolder},
    PublishedName{"licence*", Place::kFolder},
    PublishedName{"copying*", Place::kFolder},
    PublishedName{"notice*", Place::kFolder},
    PublishedName{"readme*", Place::kFolder},
    PublishedName{"use_policy*", Place::kFolder},
    PublishedName{"citation*", Place::kFolder},
    PublishedName{"*.md", Place::kFolder},
    PublishedName{"*.pdf", Place::kFolder},
    PublishedName{".gitattributes", Place::kTop},
    PublishedName{".gitignore", Place::kTop},
    // Code of the model.
    PublishedName{"*.py", Place::kFolder},
    PublishedName{"requirements*.txt", Place::kFolder},
    // Pictures.
    PublishedName{"*.png", Place::kFolder},
    PublishedName{"*.jpg", Place::kFolder},
    PublishedName{"*.jpeg", Place::kFolder},
    PublishedName{"*.gif", Place::kFolder},
    PublishedName{"*.svg", Place::kFolder},
    PublishedName{"*.webp", Place::kFolder},
};

// Names that match the patterns above, but do not belong to the published model.
struct ForeignName {
  std::string_view pattern;
  std::string_view why;
};
constexpr std::string_view kAdapterConfigName = "adapter_config.json";
constexpr std::array kForeignNames = {
    // If Transformers finds one, it loads the model for which the file was made, and not this one.
    ForeignName{kAdapterConfigName, "describes an adapter (PEFT), whose weights are left out"},
    ForeignName{"ds_config*.json", "configures DeepSpeed for a training run"},
    ForeignName{"deepspeed_config*.json", "configures DeepSpeed for a training run"},
    ForeignName{"accelerate_config*.json", "configures Accelerate for a training run"},
};

// Endings of names of files with tensors, in the frameworks that publish and train models.
constexpr std::array<std::string_view, 14> kWeightSuffixes = {
    ".safetensors", ".bin",     ".pt", ".pth",  ".ckpt",      ".distcp", ".gguf",
    ".h5",          ".msgpack", ".ot", ".onnx", ".onnx_data", ".npz",    ".metadata"};

bool Matches(const std::string& name, std::string_view pattern, int flags) {
  return ::fnmatch(std::string(pattern).c_str(), name.c_str(), flags | FNM_CASEFOLD) == 0;
}

bool HoldsWeights(std::string_view name) {
  return std::any_of(kWeightSuffixes.begin(), kWeightSuffixes.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// Whether libraries take a file of this name for a model's weights. Others that torch.save makes
// may be a trainer's: optimizer.pt, rng_state_0.pth, training_args.bin.
//
// REQUIRES: HoldsWeights(name).
bool IsLoadedAsModel(const std::string& name) {
  constexpr std::array<std::string_view, 3> kTorchSuffixes = {".bin", ".pt", ".pth"};
  const bool is_torch =
      std::ranges::any_of(kTorchSuffixes, [&](auto suffix) { return name.ends_with(suffix); });
  return !is_torch || Matches(name, "pytorch_model[-.]*", 0);
}

std::string_view FolderOf(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : name.substr(0, slash);
}

// Where a repository has weights: whose they are at its top, and the subfolders that have some of
// their own.
class WeightFolders {
 public:
  explicit WeightFolders(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (!HoldsWeights(name)) continue;
      if (!FolderOf(name).empty()) {
        folders_.emplace(FolderOf(name));
      } else if (name.starts_with("adapter_model.")) {
        has_adapter_ = true;
      } else {
        (IsLoadedAsModel(name) ? has_model_ : has_others_) = true;
      }
    }
  }
  // Whether the weights at the top are an adapter's (PEFT); also where there are none at all.
  [[nodiscard]] bool is_adapter() const { return !has_model_ && (has_adapter_ || !has_others_); }
  // Whether the file is in one of them, at any depth.
  [[nodiscard]] bool Contain(std::string_view name) const {
    for (std::string_view folder = FolderOf(name); !folder.empty(); folder = FolderOf(folder)) {
      if (folders_.contains(folder)) return true;
    }
    return false;
  }

 private:
  bool has_adapter_ = false;
  bool has_model_ = false;
  bool has_others_ = false;
  std::set<std::string, std::less<>> folders_;
};

const ForeignName* FindForeign(const std::string& name, const WeightFolders& weights) {
  if (name == kAdapterConfigName && weights.is_adapter()) return nullptr;
  const auto row = std::ranges::find_if(kForeignNames, [&](const ForeignName& foreign) {
    return Matches(name, foreign.pattern, FNM_PATHNAME);
  });
  return row == kForeignNames.end() ? nullptr : &*row;
}

bool IsPublished(const std::string& name, const WeightFolders& weights) {
  if (HoldsWeights(name) || FindForeign(name, weights) != nullptr) return false;
  const std::string base = name.substr(FolderOf(name).size() + (FolderOf(name).empty() ? 0 : 1));
  return std::any_of(kPublishedNames.begin(), kPublishedNames.end(), [&](const PublishedName& row) {
    if (row.place == Place::kTop) return Matches(name, row.pattern, FNM_PATHNAME);
    return Matches(base, row.pattern, 0) && !weights.Contain(name);
  });
}

std::string WhyLeftOut(const std::string& name, const WeightFolders& weights) {
  if (weights.Contain(name)) return "lies in a folder that has weights of its own";
  if (const ForeignName* foreign = FindForeign(name, weights)) return std::string(foreign->why);
  if (HoldsWeights(name))
    return "holds tensors, and is none of the files that the model is read from";
  return "no part of a published model";
}

// Of version control, of a download, or of a conversion that is not complete.
bool IsOfSkippedDirectory(std::string_view name) {
  return name.starts_with(".git/") || name.starts_with(".cache/") ||
         name.find(kStagingSuffix) != std::string_view::npos;
}

// Whether the file tells readers which file holds which tensor. What stands before the first dot
// is a library's own: "diffusion_pytorch_model.safetensors.index.json".
bool IsIndexFile(std::string_view name) {
  return std::ranges::any_of(Formats(), [&](const Format* format) {
    const std::string_view known = format->index_file;
    return !known.empty() && name.ends_with(known.substr(known.find('.')));
  });
}

// Files that describe the other files of a checkpoint, so that a copy gets its own: those that
// these tools add, and Megatron-Core's checksums.
bool DescribesFiles(std::string_view name) {
  return name == kManifestName || name == kManifestCopyName || name == "integrity.json" ||
         (name.starts_with(kParityPrefix) && name.ends_with(kParitySuffix));
}

}  // namespace

Result<SideFiles> ListSideFiles(Storage& storage, const Path& repository) {
  CKPT_ASSIGN_OR_RETURN(std::vector<std::string> names, ListRecursively(storage, repository));
  std::erase_if(names, [](const std::string& name) {
    return IsOfSkippedDirectory(name) || DescribesFiles(name);
  });
  const WeightFolders weights(names);
  SideFiles files;
  for (std::string& name : names) {
    if (!IsUtf8(name)) {
      return Error(ErrorKind::kUnsupported,
                   "the name of a side file is not UTF-8, as the manifest's must be")
          .File((repository / name).string())
          .Hint("rename or remove it");
    }
    if (IsPublished(name, weights)) {
      files.carried.push_back(std::move(name));
      continue;
    }
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(repository / name));
    std::string why = WhyLeftOut(name, weights);
    files.left_out.push_back({std::move(name), stat.size_bytes, std::move(why)});
  }
  return files;
}

Status CheckFetched(Storage& storage, const Path& repository,
                    const std::vector<std::string>& names) {
  Status pointers;
  for (const std::string& name : names) {
    CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file,
                          storage.Open(repository / name));
    pointers.Add(RefuseGitLfsPointer(*file));
  }
  return pointers;
}

Result<CarriedFiles> CarrySideFiles(Storage& storage, const Path& repository,
                                    const std::vector<std::string>& names,
                                    const CarryOptions& options) {
  CarriedFiles files;
  for (const std::string& name : names) {
    const Path path = repository / name;
    if (options.drops_index && IsIndexFile(name)) continue;
    if (!options.target->index_file.empty() && IsIndexFile(name)) {
      CKPT_ASSIGN_OR_RETURN(std::string text, ReadSmallFile(storage, path, kMaxIndexBytes));
      files.indexes.push_back({.name = name, .content = std::move(text)});
      continue;
    }
    const bool says_dtype = options.dtype && options.target->needs_config;
    if (name == kHfConfigName && (says_dtype || options.is_decoded)) {
      CKPT_ASSIGN_OR_RETURN(const std::string config,
                            ReadSmallFile(storage, path, kMaxHfConfigBytes));
      std::string described = says_dtype ? DescribeDtype(config, *options.dtype) : config;
      if (options.is_decoded) described = RemoveMember(described, kQuantizationConfig);
      if (described != config) {
        files.texts.push_back({.name = name, .content = std::move(described)});
        continue;
      }
    }
    files.copies.push_back({.from = path, .name = name});
  }
  return files;
}

}  // namespace ckpt
