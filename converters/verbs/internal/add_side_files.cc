#include "converters/verbs/internal/add_side_files.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
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

// Why a published file beside the checkpoint is not taken along.
std::string WhyNotCarried(const ModelSource& model) {
  return model.assets.empty() ? "goes along only where a config.json is"
                              : "side files are taken from " + model.assets.string();
}

// All files of the checkpoint's directory, as if none of them were carried.
Result<std::vector<LeftOutEntry>> ListBeside(Storage& storage, const ModelSource& model) {
  const Path& directory = model.checkpoint->directory;
  CKPT_ASSIGN_OR_RETURN(SideFiles files, ListSideFiles(storage, directory));
  for (std::string& name : files.carried) {
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory / name));
    files.left_out.push_back({std::move(name), stat.size_bytes, WhyNotCarried(model)});
  }
  std::ranges::sort(files.left_out, {}, &LeftOutEntry::key);
  return std::move(files.left_out);
}

// How the names of files below the checkpoint's directory begin where only side files are.
std::vector<std::string> PrefixesOfAssets(const ModelSource& model) {
  std::vector<std::string> prefixes;
  const std::string_view usual = model.checkpoint->format->assets_directory;
  if (!usual.empty()) prefixes.push_back(fmt::format("{}/", usual));
  if (model.assets.empty()) return prefixes;
  const Path directory = CanonicalPath(model.checkpoint->directory);
  const Path assets = CanonicalPath(model.assets);
  if (IsWithin(assets, directory)) {
    prefixes.push_back(assets.lexically_relative(directory).string() + "/");
  }
  return prefixes;
}

// Whether the reader warns of states in the checkpoint's directory that it leaves unread. It has
// opened files to find out what they are; only those of its index are read.
bool LeavesOpenedFiles(const OpenedCheckpoint& checkpoint) {
  const std::string directory = checkpoint.directory.string();
  return std::ranges::any_of(checkpoint.source->index().problems(), [&](const Problem& problem) {
    return problem.kind == ErrorKind::kLeftover && problem.file == directory;
  });
}

// Files of the checkpoint's directory that nobody reads, and that are not carried to the target.
// `of_assets` are those of the place that side files are taken from. If that is another one, they
// are not part of the source.
Result<std::vector<LeftOutEntry>> LeftOutFiles(Storage& storage, const ModelSource& model,
                                               std::vector<LeftOutEntry> of_assets,
                                               const std::vector<WriteCopy>& tokenizer) {
  const OpenedCheckpoint& checkpoint = *model.checkpoint;
  const Path& directory = checkpoint.directory;
  std::vector<LeftOutEntry> files;
  if (directory.empty()) return files;
  if (!model.assets.empty() && CanonicalPath(model.assets) == CanonicalPath(directory)) {
    files = std::move(of_assets);
  } else {
    CKPT_ASSIGN_OR_RETURN(files, ListBeside(storage, model));
    // A reader has warned of what an earlier save left there. Other problems say of a file that it
    // is not as it should be, not that it stays behind.
    std::set<std::string_view> told;
    for (const Problem& problem : model.source().index().problems()) {
      if (problem.kind == ErrorKind::kLeftover) told.insert(problem.file);
    }
    std::erase_if(files, [&](const LeftOutEntry& file) {
      return told.contains(file.key) || told.contains((directory / file.key).string());
    });
  }
  const std::span<const std::string> named = model.source().index().files();
  const std::set<std::string_view> own(named.begin(), named.end());
  const std::vector<std::string> assets = PrefixesOfAssets(model);
  const bool opens_to_read = !LeavesOpenedFiles(checkpoint);
  std::erase_if(files, [&](const LeftOutEntry& file) {
    const Path path = directory / file.key;
    const bool is_of_assets = std::ranges::any_of(
        assets, [&](const std::string& prefix) { return file.key.starts_with(prefix); });
    // Where ranks write files, one without data writes an empty one.
    return file.bytes == 0 || is_of_assets || own.contains(file.key) ||
           (opens_to_read && checkpoint.read_files.contains(path.string())) ||
           std::ranges::find(tokenizer, path, &WriteCopy::from) != tokenizer.end();
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
  SideFiles files;
  if (!model.assets.empty()) {
    CKPT_ASSIGN_OR_RETURN(files, ListSideFiles(storage, model.assets));
    CKPT_RETURN_IF_ERROR(CheckFetched(storage, model.assets, files.carried));
  }
  Result<std::vector<LeftOutEntry>> left_out =
      LeftOutFiles(storage, model, std::move(files.left_out), tokenizer);
  if (left_out.ok()) {
    prepared.left_out_files = *std::move(left_out);
  } else {
    // The target is the same without them.
    Problem warning = left_out.status().first();
    warning.severity = Severity::kWarning;
    warning.message = "what lies beside the checkpoint is not listed: " + warning.message;
    prepared.warnings.push_back(std::move(warning));
  }
  if (model.assets.empty()) {
    request.side_files = std::move(tokenizer);
    return OkStatus();
  }
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
