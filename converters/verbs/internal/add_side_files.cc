#include "converters/verbs/internal/add_side_files.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "converters/verbs/internal/files_beside.h"
#include "converters/verbs/side_files.h"
#include "core/io/path.h"
#include "core/manifest/manifest_text.h"
#include "core/tensor/shape.h"

namespace ckpt {
namespace {

// Files of the repository that are not carried to the target and hold no weights of the model. If
// the configuration is from another directory, the files there are not part of the source.
std::vector<LeftOutEntry> LeftOutFiles(const ModelSource& model, std::vector<LeftOutEntry> files) {
  const bool is_own = model.checkpoint->format->assets_directory.empty() &&
                      CanonicalPath(model.assets) == CanonicalPath(model.checkpoint->path);
  if (!is_own) return {};
  const std::span<const std::string> read = model.source().index().files();
  std::erase_if(files, [&](const LeftOutEntry& file) {
    return std::find(read.begin(), read.end(), file.key) != read.end();
  });
  return files;
}

// The files of the tokenizer that the checkpoint itself has, named as in a published model.
Result<std::vector<WriteCopy>> ListTokenizer(Storage& storage, const OpenedCheckpoint& checkpoint) {
  std::vector<WriteCopy> files;
  const std::string_view name = checkpoint.format->tokenizer_directory;
  if (name.empty()) return files;
  const Path directory = checkpoint.path / std::string(name);
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory));
  if (stat.type != FileType::kDirectory) return files;
  CKPT_ASSIGN_OR_RETURN(const SideFiles listed, ListSideFiles(storage, directory));
  for (const std::string& file : listed.carried) {
    files.push_back({.from = directory / file, .name = file});
  }
  return files;
}

}  // namespace

DType MainDtype(const std::vector<TargetTensor>& tensors) {
  std::map<DType, std::int64_t> elements;
  for (const TargetTensor& tensor : tensors) elements[tensor.dtype] += NumElements(tensor.shape);
  const auto most =
      std::max_element(elements.begin(), elements.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? DType::kFloat32 : most->first;
}

Status AddSideFiles(Storage& storage, const Format& target, PreparedConversion& prepared,
                    WeightsRequest& request) {
  const ModelSource& model = prepared.model;
  CKPT_ASSIGN_OR_RETURN(std::vector<WriteCopy> tokenizer,
                        ListTokenizer(storage, *model.checkpoint));
  if (model.assets.empty()) {
    request.side_files = std::move(tokenizer);
    return OkStatus();
  }
  CKPT_ASSIGN_OR_RETURN(SideFiles files, ListSideFiles(storage, model.assets));
  CKPT_RETURN_IF_ERROR(CheckFetched(storage, model.assets, files.carried));
  prepared.left_out_files = LeftOutFiles(model, std::move(files.left_out));
  CarryOptions options = {.target = &target};
  const bool was_cast =
      prepared.origin.choices.contains("cast") || prepared.origin.choices.contains("decoded");
  const bool is_same_model = model.manifest && model.manifest->origin && !was_cast;
  if (!is_same_model) options.dtype = MainDtype(request.tensors);
  options.is_decoded = model.family != nullptr;
  options.drops_index = model.decoded.source != nullptr;
  CKPT_ASSIGN_OR_RETURN(CarriedFiles carried,
                        CarrySideFiles(storage, model.assets, files.carried, options));
  request.side_files = std::move(carried.copies);
  std::erase_if(request.side_files, [&](const WriteCopy& file) {
    return std::ranges::find(tokenizer, file.name, &WriteCopy::name) != tokenizer.end();
  });
  request.side_files.insert(request.side_files.end(), tokenizer.begin(), tokenizer.end());
  request.side_texts = std::move(carried.texts);
  request.original_indexes = std::move(carried.indexes);
  return OkStatus();
}

Status FillOneFile(Storage& storage, const ConvertOptions& options, PreparedConversion& prepared,
                   WeightsRequest& request) {
  if (options.parity_group != 0) {
    return Error(ErrorKind::kUsage,
                 fmt::format("a {} file has no parity files", prepared.to.container->name));
  }
  request.file_name = options.target.filename().string();
  CKPT_ASSIGN_OR_RETURN(request.names_in_use,
                        NamesInUse(storage, *prepared.to.container, options.target));
  if (prepared.to.container->holds_objects) {
    Manifest account;
    account.tool = "ckptkit " CKPT_VERSION;
    account.origin = prepared.origin;
    request.origin = SerializeManifest(std::move(account));
  }
  for (const WriteCopy& copy : request.side_files) {
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(copy.from));
    prepared.left_out_files.push_back(
        {.key = copy.name, .bytes = stat.size_bytes, .why = "the target is one file"});
  }
  for (const SideText& text : request.side_texts) {
    prepared.left_out_files.push_back(
        {.key = text.name, .bytes = text.content.size(), .why = "the target is one file"});
  }
  request.side_files.clear();
  request.side_texts.clear();
  return OkStatus();
}

}  // namespace ckpt
