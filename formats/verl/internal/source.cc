#include "formats/verl/internal/source.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/name_list.h"
#include "core/base/units.h"
#include "core/base/warning.h"
#include "formats/torch_save/rank_set.h"
#include "formats/verl/internal/rank_files.h"

namespace ckpt::verl {
namespace {

using torch_save::PlacedPart;
using torch_save::RankSet;
using torch_save::RankTensor;

// Of the mesh that the ranks' places span, by its dims.
using MeshSizes = std::vector<std::int64_t>;

// The rank's box by torch's rule for Shard: along each dim of the mesh in turn, pieces of equal
// size, rounded up, of what is left of the tensor's dim; the last ones may be short or empty.
Result<Box> BoxOf(const RankPart& part, const MeshSizes& mesh) {
  Box box = WholeBox(part.shape);
  for (std::size_t i = 0; i < part.cut_dims.size(); ++i) {
    if (!part.cut_dims[i]) continue;
    const std::int64_t ndim = static_cast<std::int64_t>(part.shape.size());
    const std::int64_t dim = *part.cut_dims[i] < 0 ? *part.cut_dims[i] + ndim : *part.cut_dims[i];
    if (dim < 0 || dim >= ndim) {
      return Error(ErrorKind::kBadMetadata, "a placement cuts a dim that the tensor lacks")
          .Expected(fmt::format("one of {} dims", ndim))
          .Actual(fmt::format("{}", *part.cut_dims[i]));
    }
    std::int64_t& offset = box.offsets[static_cast<std::size_t>(dim)];
    std::int64_t& size = box.sizes[static_cast<std::size_t>(dim)];
    const std::int64_t piece = size / mesh[i] + (size % mesh[i] != 0 ? 1 : 0);
    // The place is below the mesh's size, so the product is less than size + mesh size.
    const std::int64_t begin = std::min(size, piece * part.coordinate[i]);
    const std::int64_t end = std::min(size, begin + piece);
    offset += begin;
    size = end - begin;
  }
  return box;
}

bool IsSameTensor(const RankPart& a, const RankPart& b) {
  return a.shape == b.shape && a.local.array.dtype == b.local.array.dtype &&
         a.cut_dims == b.cut_dims;
}

std::string Describe(const RankPart& part) {
  return fmt::format("{} {}, {} mesh dims", DTypeName(part.local.array.dtype),
                     FormatDims(part.shape), part.cut_dims.size());
}

// What lies beside the model and is not read: the other states of the same save.
std::optional<Problem> WarnOfOtherStates(Storage& storage, const Path& directory,
                                         std::span<const DirectoryEntry> entries) {
  std::set<std::string> states;
  std::uint64_t size_bytes = 0;
  for (const DirectoryEntry& entry : entries) {
    const std::optional<RankFile> file = ParseRankFile(entry.name);
    if (!file || IsModelFile(entry.name)) continue;
    states.emplace(file->state);
    const Result<FileStat> stat = storage.Stat(directory / entry.name);
    if (stat.ok()) size_bytes += stat->size_bytes;
  }
  if (states.empty()) return std::nullopt;
  Problem warning =
      Warning(ErrorKind::kLeftover, "states beside the model are not read", directory.string(), "");
  warning.actual = fmt::format("{}, {}", NameSome(std::vector(states.begin(), states.end())),
                               FormatByteSize(size_bytes));
  warning.hint = "open their files one by one";
  return warning;
}

// A rank's part of a tensor; `rank` is also its file's number.
struct OfRank {
  std::size_t rank = 0;
  RankPart part;
};
// Of one tensor, from all ranks, by rank.
using Parts = std::vector<OfRank>;

// By the tensor's key. Errors: those of RankParts, of all files at once.
Result<std::map<std::string, Parts>> CollectParts(const RankSet& set) {
  std::map<std::string, Parts> tensors;
  Status failures;
  for (std::size_t rank = 0; rank < set.files.size(); ++rank) {
    Result<std::vector<RankPart>> parts = set.files[rank]->RankParts();
    if (!parts.ok()) {
      failures.Add(std::move(parts).status());
      continue;
    }
    for (RankPart& part : *parts) {
      const std::string key = part.key;
      tensors[key].push_back({.rank = rank, .part = std::move(part)});
    }
  }
  if (!failures.ok()) return failures;
  return tensors;
}

// Where the parts of a tensor lie in it. Errors: what the tensor's problem is.
Result<std::vector<PlacedPart>> Place(const Parts& parts, const std::vector<std::string>& names) {
  const RankPart& pattern = parts.front().part;
  if (parts.size() != names.size()) {
    std::vector<std::string> lacking = names;
    for (const OfRank& has : parts | std::views::reverse) {
      lacking.erase(lacking.begin() + static_cast<std::ptrdiff_t>(has.rank));
    }
    return Error(ErrorKind::kMissing, "a rank has no part of the tensor")
        .File(lacking.front())
        .Expected(fmt::format("a part in each of {} files", names.size()))
        .Actual("none in " + NameSome(lacking));
  }
  MeshSizes mesh(pattern.cut_dims.size(), 1);
  for (const OfRank& of_rank : parts) {
    if (!IsSameTensor(of_rank.part, pattern)) {
      return Error(ErrorKind::kBadMetadata, "the ranks describe a tensor differently")
          .File(names[of_rank.rank])
          .Expected(Describe(pattern))
          .Actual(Describe(of_rank.part));
    }
    for (std::size_t i = 0; i < mesh.size(); ++i) {
      mesh[i] = std::max(mesh[i], of_rank.part.coordinate[i] + 1);
    }
  }
  std::vector<PlacedPart> placed;
  for (const OfRank& of_rank : parts) {
    const RankPart& part = of_rank.part;
    CKPT_ASSIGN_OR_RETURN(Box box, BoxOf(part, mesh));
    if (part.local.shape != box.sizes) {
      return Error(ErrorKind::kShapeMismatch, "a rank's part has another size than its place")
          .File(names[of_rank.rank])
          .Expected(fmt::format("{}, the part {} of {}", FormatDims(box.sizes), FormatBox(box),
                                FormatDims(part.shape)))
          .Actual(FormatDims(part.local.shape));
    }
    placed.push_back({.file = of_rank.rank, .box = std::move(box), .local = part.local});
  }
  return placed;
}

// What the files hold besides these tensors. Files may have the same objects: the first one's are
// taken.
void AddRest(const std::map<std::string, Parts>& tensors, RankSet& set) {
  std::set<std::string_view> objects;
  for (FileId file = 0; file < set.files.size(); ++file) {
    const CheckpointIndex& of_rank = set.files[file]->index();
    for (const Problem& problem : of_rank.problems()) {
      if (!tensors.contains(problem.tensor)) set.problems.push_back(problem);
    }
    for (ObjectEntry object : of_rank.objects()) {
      const bool is_part = tensors.contains(object.key);
      if (is_part || !objects.insert(of_rank.FindObject(object.key)->key).second) continue;
      object.file = file;
      set.objects.push_back(std::move(object));
    }
  }
}

}  // namespace

Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  CKPT_ASSIGN_OR_RETURN(std::vector<std::string> names, FindModelFiles(directory, entries));
  CKPT_ASSIGN_OR_RETURN(RankSet set,
                        torch_save::OpenRankFiles(storage, directory, std::move(names)));
  const std::optional<Problem> warning = WarnOfOtherStates(storage, directory, entries);
  if (warning) set.problems.push_back(*warning);
  CKPT_ASSIGN_OR_RETURN(const auto tensors, CollectParts(set));
  for (const auto& [key, parts] : tensors) {
    const RankPart& pattern = parts.front().part;
    RankTensor tensor{.key = key, .dtype = pattern.local.array.dtype, .shape = pattern.shape};
    Result<std::vector<PlacedPart>> placed = Place(parts, set.names);
    if (placed.ok()) {
      tensor.parts = *std::move(placed);
    } else {
      tensor.problem = std::move(placed).status();
    }
    set.tensors.push_back(std::move(tensor));
  }
  AddRest(tensors, set);
  return torch_save::RankSetSource::Make(std::move(set));
}

}  // namespace ckpt::verl
