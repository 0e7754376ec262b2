#include "formats/verl/internal/rank_tensors.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/name_list.h"

namespace ckpt::verl {
namespace {

using torch_save::PlacedPart;
using torch_save::RankPart;
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
         a.cut_dims == b.cut_dims && a.box.has_value() == b.box.has_value();
}

std::string Describe(const RankPart& part) {
  const std::string form =
      part.box ? "a ShardedTensor" : fmt::format("{} mesh dims", part.cut_dims.size());
  return fmt::format("{} {}, {}", DTypeName(part.local.array.dtype), FormatDims(part.shape), form);
}

Status CheckSame(const OfRank& of_rank, const RankPart& pattern,
                 const std::vector<std::string>& names) {
  if (IsSameTensor(of_rank.part, pattern)) return OkStatus();
  return Error(ErrorKind::kBadMetadata, "the ranks describe a tensor differently")
      .File(names[of_rank.rank])
      .Expected(Describe(pattern))
      .Actual(Describe(of_rank.part));
}

// The parts of a ShardedTensor say where they lie. A rank may have none of it, so what all of them
// leave out shows only when the boxes are counted.
Result<std::vector<PlacedPart>> PlaceShards(const Parts& parts,
                                            const std::vector<std::string>& names) {
  std::vector<PlacedPart> placed;
  for (const OfRank& of_rank : parts) {
    const RankPart& part = of_rank.part;
    CKPT_RETURN_IF_ERROR(CheckSame(of_rank, parts.front().part, names));
    if (Status inside = CheckInside(*part.box, part.shape); !inside.ok()) {
      return std::move(inside).File(names[of_rank.rank]);
    }
    placed.push_back({.file = of_rank.rank, .box = *part.box, .local = part.local});
  }
  return placed;
}

// Where the parts of a tensor lie in it. Errors: what the tensor's problem is.
Result<std::vector<PlacedPart>> Place(const Parts& parts, const std::vector<std::string>& names) {
  const RankPart& pattern = parts.front().part;
  if (pattern.box) return PlaceShards(parts, names);
  std::set<std::size_t> having;
  for (const OfRank& of_rank : parts) {
    if (having.insert(of_rank.rank).second) continue;
    return Error(ErrorKind::kBadMetadata, "a file has two tensors under one key")
        .File(names[of_rank.rank]);
  }
  if (having.size() != names.size()) {
    std::vector<std::string> lacking;
    for (std::size_t rank = 0; rank < names.size(); ++rank) {
      if (!having.contains(rank)) lacking.push_back(names[rank]);
    }
    return Error(ErrorKind::kMissing, "a rank has no part of the tensor")
        .File(lacking.front())
        .Expected(fmt::format("a part in each of {} files", names.size()))
        .Actual("none in " + NameSome(lacking));
  }
  MeshSizes mesh(pattern.cut_dims.size(), 1);
  for (const OfRank& of_rank : parts) {
    CKPT_RETURN_IF_ERROR(CheckSame(of_rank, pattern, names));
    for (std::size_t i = 0; i < mesh.size(); ++i) {
      const std::int64_t place = of_rank.part.coordinate[i];
      if (std::cmp_greater_equal(place, names.size())) {
        return Error(ErrorKind::kBadMetadata,
                     "a rank's place lies outside any mesh of so many ranks")
            .File(names[of_rank.rank])
            .Expected(fmt::format("below {} along every dim", names.size()))
            .Actual(fmt::format("{}", place));
      }
      mesh[i] = std::max(mesh[i], place + 1);
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

}  // namespace

Result<std::map<std::string, Parts>> CollectParts(const RankSet& set, std::string_view prefix) {
  std::map<std::string, Parts> tensors;
  Status failures;
  for (std::size_t rank = 0; rank < set.files.size(); ++rank) {
    Result<std::vector<RankPart>> parts = set.files[rank]->RankParts(prefix);
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

RankTensor Assemble(const std::string& key, const Parts& parts,
                    const std::vector<std::string>& names) {
  const RankPart& pattern = parts.front().part;
  RankTensor tensor{.key = key, .dtype = pattern.local.array.dtype, .shape = pattern.shape};
  if (Status status = CountBytes(tensor.shape, tensor.dtype).status(); !status.ok()) {
    tensor.problem = std::move(status).File(names[parts.front().rank]);
    tensor.shape = pattern.local.shape;  // of what is there, at least
    return tensor;
  }
  Result<std::vector<PlacedPart>> placed = Place(parts, names);
  if (placed.ok()) {
    tensor.parts = *std::move(placed);
  } else {
    tensor.problem = std::move(placed).status();
  }
  return tensor;
}

}  // namespace ckpt::verl
