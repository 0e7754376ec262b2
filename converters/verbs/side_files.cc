#include "converters/verbs/side_files.h"

#include <algorithm>
#include <array>

#include "core/base/quote.h"
#include "core/checkpoint/manifest.h"

namespace ckpt {
namespace {

struct NamePattern {
  std::string_view prefix;
  std::string_view suffix;
};

// What the hub's model repositories call their weights, and what a checkpoint's own directory holds beside a config.json.
constexpr std::array kWeightNames = {
    NamePattern{"", ".safetensors"},
    NamePattern{"pytorch_model", ".bin"},
    NamePattern{"adapter_model", ".bin"},
    NamePattern{"consolidated", ".pth"},
    NamePattern{"", ".pth"},
    NamePattern{"", ".gguf"},
    NamePattern{"tf_model", ".h5"},
    NamePattern{"flax_model", ".msgpack"},
    NamePattern{"rust_model", ".ot"},
    NamePattern{"", ".onnx"},
    NamePattern{"", ".onnx_data"},
    NamePattern{"", ".distcp"},
    NamePattern{"", ".metadata"},
    NamePattern{"common", ".pt"},
};

bool IsSkippedDirectory(std::string_view name) {
  return name.starts_with(".git/") || name.starts_with(".cache/");
}

// What these tools put beside a checkpoint's own files: it is about those, and is made anew.
bool IsOfSidecar(std::string_view name) {
  return name == kManifestName || name == kManifestCopyName ||
         (name.starts_with(kParityPrefix) && name.ends_with(kParitySuffix));
}

}  // namespace

bool IsWeightFile(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  const std::string_view base = slash == std::string_view::npos ? name : name.substr(slash + 1);
  return std::any_of(kWeightNames.begin(), kWeightNames.end(), [&](const NamePattern& pattern) {
    return base.starts_with(pattern.prefix) && base.ends_with(pattern.suffix);
  });
}

Result<std::vector<std::string>> ListSideFiles(Storage& storage, const Path& repository) {
  CKPT_ASSIGN_OR_RETURN(std::vector<std::string> names, ListRecursively(storage, repository));
  std::erase_if(names, [](const std::string& name) {
    return IsWeightFile(name) || IsSkippedDirectory(name) || IsOfSidecar(name);
  });
  for (const std::string& name : names) {
    if (IsUtf8(name)) continue;
    return Error(ErrorKind::kUnsupported,
                 "the name of a side file is no UTF-8, as the sidecar's must be")
        .File((repository / name).string())
        .Hint("rename or remove it");
  }
  return names;
}

}  // namespace ckpt
