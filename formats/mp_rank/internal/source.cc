#include "formats/mp_rank/internal/source.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/units.h"
#include "core/base/warning.h"
#include "formats/mp_rank/internal/arguments.h"
#include "formats/mp_rank/internal/division.h"
#include "formats/mp_rank/internal/global_name.h"
#include "formats/mp_rank/internal/rank_directories.h"
#include "formats/torch_save/rank_set.h"

namespace ckpt::mp_rank {
namespace {

using torch_save::PlacedPart;
using torch_save::RankSet;
using torch_save::RankTensor;
using torch_save::RebuiltTensor;

constexpr std::string_view kModelMember = "model";
constexpr std::string_view kHead = "output_layer.weight";
constexpr std::string_view kEmbedding = "embedding.word_embeddings.weight";
// A rank's file; the second name is that of a job whose optimizer is distributed, of some versions.
constexpr std::array<std::string_view, 2> kFileNames = {"model_optim_rng.pt", "model_rng.pt"};
// Members of a file that every rank has of its own, and that are not read.
constexpr std::array<std::string_view, 2> kOwnStates = {"optimizer", "rng_state"};

bool IsOfModel(std::string_view member) { return member.starts_with(kModelMember); }

bool IsOwnState(std::string_view member) {
  return std::ranges::find(kOwnStates, member) != kOwnStates.end();
}

// The file in a rank's directory, which is relative to `root`.
Result<std::string> FileIn(Storage& storage, const Path& root, const std::string& directory) {
  for (const std::string_view name : kFileNames) {
    std::string file = directory + "/" + std::string(name);
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(root / file));
    if (stat.type == FileType::kRegular) return file;
  }
  return Error(ErrorKind::kMissingFile, "a rank's directory does not hold its model")
      .File((root / directory).string())
      .Expected(fmt::format("{}", fmt::join(kFileNames, " or ")));
}

// The arguments, from the file of any rank.
Result<Arguments> FindArguments(Storage& storage, const Path& root,
                                const std::vector<DirectoryEntry>& entries) {
  const auto any = std::ranges::find_if(entries, [](const DirectoryEntry& entry) {
    return entry.type == FileType::kDirectory && ParseRankDirectory(entry.name).has_value();
  });
  if (any == entries.end()) {
    return Error(ErrorKind::kMissingFile, "no directory of a rank is there").File(root.string());
  }
  CKPT_ASSIGN_OR_RETURN(const std::string name, FileIn(storage, root, any->name));
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<TorchSaveSource> file,
                        TorchSaveSource::Open(storage, root / name));
  Result<Arguments> arguments = ReadArguments(*file);
  if (!arguments.ok()) return std::move(arguments).status().File((root / name).string());
  return arguments;
}

// Each rank of those that share the experts has as many of them.
Status CheckExperts(const Arguments& arguments, const Path& root) {
  const std::int64_t ranks = arguments.sizes.expert;
  const std::int64_t experts = arguments.num_experts;
  if (experts >= 0 && experts % ranks == 0 && (experts > 0 || ranks == 1)) return OkStatus();
  return Error(ErrorKind::kBadMetadata, "the ranks cannot share so many experts evenly")
      .File(root.string())
      .Expected(fmt::format("a multiple of expert_model_parallel_size, {}", ranks))
      .Actual(fmt::format("num_experts {}", experts));
}

// A rank's part of a tensor.
struct OfRank {
  std::size_t file = 0;
  Coordinate at;
  RebuiltTensor local;
};
// Of all ranks, by the tensor's name in the model.
using Parts = std::map<std::string, std::vector<OfRank>>;

// Errors: those of RankParts and of the names, of all files at once.
Result<Parts> CollectParts(const RankSet& set, const std::vector<RankDirectory>& ranks,
                           const Arguments& arguments) {
  std::vector<std::vector<RankPart>> of_files;
  LayerOffsets offsets;
  Status failures;
  for (std::size_t file = 0; file < set.files.size(); ++file) {
    Result<std::vector<RankPart>> parts = set.files[file]->RankParts(kModelMember);
    if (!parts.ok()) {
      failures.Add(std::move(parts).status());
      continue;
    }
    for (const RankPart& part : *parts) {
      const std::optional<LocalName> local = ParseLocalName(part.key);
      if (local) failures.Add(offsets.Note(ranks[file].at.pipeline, *local).File(set.names[file]));
    }
    of_files.push_back(*std::move(parts));
  }
  if (!failures.ok()) return failures;
  const std::int64_t num_layers = offsets.Finish();
  if (arguments.num_layers && *arguments.num_layers != num_layers) {
    return Error(ErrorKind::kBadMetadata, "the stages have another number of layers than the model")
        .File(set.names.front())
        .Expected(fmt::format("{}, as the arguments say", *arguments.num_layers))
        .Actual(fmt::format("{}", num_layers));
  }
  const std::int64_t own_experts = arguments.num_experts / arguments.sizes.expert;
  Parts tensors;
  for (std::size_t file = 0; file < of_files.size(); ++file) {
    const Coordinate& at = ranks[file].at;
    for (RankPart& part : of_files[file]) {
      const std::optional<LocalName> local = ParseLocalName(part.key);
      if (!local) continue;
      CKPT_ASSIGN_OR_RETURN(
          std::string name,
          WithExpertNumber(offsets.GlobalName(at.pipeline, *local), at.expert * own_experts));
      // The last stage keeps a copy of the embedding that it shares with the first one.
      if (arguments.ties_head && name == kHead) name = kEmbedding;
      tensors[name].push_back({.file = file, .at = at, .local = std::move(part.local)});
    }
  }
  return tensors;
}

// The rows of a part from `first` on, as many as `shape` has.
RebuiltTensor RowsOf(RebuiltTensor part, std::int64_t first, const Dims& shape) {
  if (!shape.empty()) {
    part.array.offset_bytes += static_cast<std::uint64_t>(first * part.array.strides.front()) *
                               ElementBytes(part.array.dtype);
  }
  part.shape = shape;
  return part;
}

// Every tensor rank of a stage that has a part of the tensor must have one.
Status CheckComplete(const std::vector<OfRank>& parts, const std::vector<std::string>& names,
                     std::int64_t tensor_ranks) {
  using Stage = std::pair<std::int64_t, std::int64_t>;
  std::map<Stage, std::vector<const OfRank*>> stages;
  for (const OfRank& part : parts) stages[{part.at.pipeline, part.at.expert}].push_back(&part);
  for (const auto& [stage, of_stage] : stages) {
    std::vector<bool> has(static_cast<std::size_t>(tensor_ranks));
    for (const OfRank* part : of_stage) has[static_cast<std::size_t>(part->at.tensor)] = true;
    const auto lacking = std::ranges::find(has, false);
    if (lacking == has.end()) continue;
    return Error(ErrorKind::kMissing, "a tensor-parallel rank has no part of the tensor")
        .File(names[of_stage.front()->file])
        .Expected(fmt::format("a part of each of {} ranks, as this file has one", tensor_ranks))
        .Actual(fmt::format("none of rank {}", lacking - has.begin()));
  }
  return OkStatus();
}

// Fills in the shape and the parts. Errors: what the tensor's problem is.
Status Place(const std::string& name, const std::vector<OfRank>& parts, const RankSet& set,
             const Arguments& arguments, RankTensor& tensor) {
  const OfRank& first = parts.front();
  const std::int64_t ranks = arguments.sizes.tensor;
  if (IsOfExpert(name) && arguments.expert_tensor != ranks) {
    return Error(ErrorKind::kUnsupported, "experts are divided by other ranks than the rest")
        .Expected(fmt::format("expert_tensor_parallel_size {}", ranks))
        .Actual(fmt::format("{}", arguments.expert_tensor));
  }
  const std::optional<Division> division =
      ranks == 1 ? Division::kWhole : DivisionOf(name, arguments.is_gated);
  if (!division) {
    return Error(ErrorKind::kUnsupported,
                 "how tensor-parallel ranks divide a tensor of this name is not known")
        .File(set.names[first.file]);
  }
  CKPT_RETURN_IF_ERROR(CheckComplete(parts, set.names, ranks));
  for (const OfRank& part : parts) {
    const bool is_like_first =
        part.local.shape == first.local.shape && part.local.array.dtype == first.local.array.dtype;
    if (!is_like_first) {
      return Error(ErrorKind::kShapeMismatch, "ranks have different parts of a tensor")
          .File(set.names[part.file])
          .Expected(fmt::format("{} {}, as in {}", DTypeName(first.local.array.dtype),
                                FormatDims(first.local.shape), set.names[first.file]))
          .Actual(fmt::format("{} {}", DTypeName(part.local.array.dtype),
                              FormatDims(part.local.shape)));
    }
    CKPT_ASSIGN_OR_RETURN(const PlacedPiece piece,
                          PlacePart(*division, part.local.shape, part.at.tensor, ranks));
    CKPT_RETURN_IF_ERROR(CountBytes(piece.shape, part.local.array.dtype).status());
    tensor.shape = piece.shape;
    for (const PlacedRows& rows : piece.rows) {
      tensor.parts.push_back({.file = part.file,
                              .box = rows.box,
                              .local = RowsOf(part.local, rows.first_row, rows.box.sizes)});
    }
  }
  return OkStatus();
}

// What every rank has of its own besides the model.
std::optional<Problem> WarnOfOwnStates(const Path& directory, const RankSet& set) {
  std::vector<std::string> states;
  for (const std::string& member : set.files.front()->members()) {
    if (IsOwnState(member)) states.push_back(member);
  }
  if (states.empty()) return std::nullopt;
  std::uint64_t size_bytes = 0;
  for (const auto& file : set.files) {
    for (const GlobalTensor& tensor : file->index().tensors()) {
      const std::string_view member = std::string_view(tensor.key).substr(0, tensor.key.find('.'));
      if (IsOwnState(member)) size_bytes += NumBytes(tensor.shape, tensor.dtype);
    }
  }
  Problem warning =
      Warning(ErrorKind::kLeftover, "states of single ranks are not read", directory.string(), "");
  warning.actual = fmt::format("{}, {}", fmt::join(states, ", "), FormatByteSize(size_bytes));
  warning.hint = "open the files of the ranks one by one";
  return warning;
}

void AddRest(const Path& directory, RankSet& set) {
  if (std::optional<Problem> warning = WarnOfOwnStates(directory, set)) {
    set.problems.push_back(*std::move(warning));
  }
  for (const std::string& member : set.files.front()->members()) {
    if (!IsOfModel(member) && !IsOwnState(member)) set.objects.push_back({.key = member});
  }
}

}  // namespace

Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  CKPT_ASSIGN_OR_RETURN(const Arguments arguments, FindArguments(storage, directory, entries));
  CKPT_ASSIGN_OR_RETURN(const std::vector<RankDirectory> ranks,
                        FindRankDirectories(directory, entries, arguments.sizes));
  CKPT_RETURN_IF_ERROR(CheckExperts(arguments, directory));
  std::vector<std::string> names;
  Status failures;
  for (const RankDirectory& rank : ranks) {
    Result<std::string> name = FileIn(storage, directory, rank.name);
    if (name.ok()) {
      names.push_back(*std::move(name));
    } else {
      failures.Add(std::move(name).status());
    }
  }
  if (!failures.ok()) return failures;
  CKPT_ASSIGN_OR_RETURN(RankSet set,
                        torch_save::OpenRankFiles(storage, directory, std::move(names)));
  CKPT_ASSIGN_OR_RETURN(const Parts tensors, CollectParts(set, ranks, arguments));
  for (const auto& [name, parts] : tensors) {
    const RebuiltTensor& first = parts.front().local;
    RankTensor tensor{.key = std::string(kModelMember) + "." + name,
                      .dtype = first.array.dtype,
                      .shape = first.shape};
    tensor.problem = Place(name, parts, set, arguments, tensor);
    if (!tensor.problem.ok()) tensor.parts.clear();
    set.tensors.push_back(std::move(tensor));
  }
  AddRest(directory, set);
  return torch_save::RankSetSource::Make(std::move(set));
}

}  // namespace ckpt::mp_rank
