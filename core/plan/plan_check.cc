#include "core/plan/plan_check.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/layout/cover.h"
#include "core/manifest/manifest.h"
#include "core/tensor/cast.h"

namespace ckpt {
namespace {

Status PlanBug(std::string_view message, std::string_view tensor) {
  return Error(ErrorKind::kInternal, message).Tensor(tensor);
}

// What is written last, into a plan whose places are known. Checksums do not change the places.
std::vector<WriteLiteral> LateLiterals(const WritePlan& plan) {
  if (!plan.late_bytes || plan.compression) return {};
  std::vector<WrittenItem> items;
  for (const WriteItem& item : plan.items) {
    items.push_back({.extent = {.offset_bytes = item.offset_bytes, .size_bytes = item.size_bytes}});
  }
  return plan.late_bytes->encode(plan, items);
}

// Items and literals of each file do not overlap.
Status CheckTiling(const WritePlan& plan) {
  struct Extent {
    std::uint32_t file;
    std::uint64_t begin;
    std::uint64_t size;
  };
  std::vector<Extent> extents;
  extents.reserve(plan.items.size() + plan.literals.size());
  for (const WriteItem& item : plan.items) {
    if (item.file >= plan.files.size()) return PlanBug("a part has no file", "");
    // Compressed items are placed later, one after the other.
    if (!plan.compression) extents.push_back({item.file, item.offset_bytes, item.size_bytes});
  }
  for (const WriteLiteral& literal : plan.literals) {
    extents.push_back({literal.file, literal.offset_bytes, literal.bytes.size()});
  }
  for (const WriteLiteral& literal : LateLiterals(plan)) {
    extents.push_back({literal.file, literal.offset_bytes, literal.bytes.size()});
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.file, a.begin, a.size) < std::tie(b.file, b.begin, b.size);
  });
  std::uint32_t file = 0;
  std::uint64_t at = 0;
  for (const Extent& extent : extents) {
    if (extent.file >= plan.files.size()) return PlanBug("a part has no file", "");
    if (extent.file != file) at = 0;
    file = extent.file;
    if (extent.begin < at) {
      return PlanBug("two parts of a file overlap", "").File(plan.files[file].name);
    }
    at = extent.begin + extent.size;
    if (at > plan.files[file].size_bytes) {
      return PlanBug("a part reaches past the end of its file", "").File(plan.files[file].name);
    }
  }
  return OkStatus();
}

Status CheckLateBytes(const WritePlan& plan) {
  if (!plan.late_bytes) return OkStatus();
  const std::vector<std::uint32_t>& files = plan.late_bytes->files;
  const bool is_whole =
      !files.empty() && plan.late_bytes->encode &&
      std::ranges::all_of(files, [&](std::uint32_t file) { return file < plan.files.size(); });
  return is_whole ? OkStatus() : PlanBug("late bytes have no files", "");
}

// Compressed items are placed while they are written, and an index says where they lie.
Status CheckCompression(const WritePlan& plan) {
  if (!plan.compression) return OkStatus();
  if (!plan.late_bytes) return PlanBug("compressed items need an index", "");
  const bool from_start = std::all_of(plan.items.begin(), plan.items.end(),
                                      [](const WriteItem& item) { return item.offset_bytes == 0; });
  return from_start ? OkStatus() : PlanBug("a compressed item has a place in advance", "");
}

// Each file has its own name, and none has the name of a file that the tools write themselves.
Status CheckNames(const WritePlan& plan) {
  std::set<std::string> names;
  Status status;
  const auto add = [&](const std::string& name) {
    const Path path = (Path("/") / name).lexically_normal().lexically_relative("/");
    const bool is_reserved = path == kJournalName ||
                             path.filename() == Path(kManifestName.data()) ||
                             path.filename() == Path(kManifestCopyName.data());
    if (is_reserved || !names.insert(path.string()).second) {
      status.Add(
          Error(ErrorKind::kAlreadyExists, "two files of the target have one name").File(name));
    }
  };
  for (const WriteFile& file : plan.files) add(file.name);
  for (const WriteCopy& copy : plan.copies) add(copy.name);
  return status;
}

// The position in C order of the first element of the box, if its elements follow each other: one
// place in the first dims, then a range, then whole dims.
std::optional<std::int64_t> FirstElement(const Box& box, const Dims& shape) {
  std::size_t cut = 0;
  while (cut < shape.size() && box.sizes[cut] == 1) ++cut;
  for (std::size_t d = cut + 1; d < shape.size(); ++d) {
    if (box.offsets[d] != 0 || box.sizes[d] != shape[d]) return std::nullopt;
  }
  std::int64_t first = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) first = first * shape[d] + box.offsets[d];
  return first;
}

// The items of one tensor, in order.
Status CheckItems(const TargetTensor& tensor, std::span<const WriteItem> items) {
  CKPT_ASSIGN_OR_RETURN(const std::uint64_t tensor_bytes, CountBytes(tensor.shape, tensor.dtype));
  std::int64_t element = 0;
  std::uint64_t payload = 0;
  for (const WriteItem& item : items) {
    CKPT_RETURN_IF_ERROR(CheckInside(item.box, tensor.shape).Tensor(tensor.key));
    if (FirstElement(item.box, tensor.shape) != element) {
      return PlanBug("the chunks of a tensor do not follow each other in C order", tensor.key);
    }
    element += NumElements(item.box.sizes);
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes, CountBytes(item.box.sizes, tensor.dtype));
    if (bytes != item.payload_bytes || item.payload_offset < item.offset_bytes ||
        item.payload_offset - item.offset_bytes + bytes > item.size_bytes) {
      return PlanBug("a chunk's payload does not fit its item", tensor.key);
    }
    payload += bytes;
  }
  if (payload != tensor_bytes) return PlanBug("the chunks do not cover the tensor", tensor.key);
  return OkStatus();
}

Status CheckRecipe(const TargetTensor& target, const TensorRecipe& recipe,
                   const CheckpointIndex& source) {
  if (recipe.source_dtype != target.dtype &&
      !(IsCastable(recipe.source_dtype) && IsCastable(target.dtype))) {
    return Error(ErrorKind::kDtypeMismatch, "no conversion between these element types")
        .Tensor(target.key)
        .Expected(DTypeName(target.dtype))
        .Actual(DTypeName(recipe.source_dtype));
  }
  for (const layout::Nest& nest : recipe.nests) {
    if (nest.is_zero_fill()) continue;
    if (nest.source >= source.tensors().size()) {
      return PlanBug("a nest names no tensor of the source", target.key);
    }
    const GlobalTensor& tensor = source.tensors()[nest.source];
    if (CommonDtype(tensor.dtype, recipe.source_dtype) != recipe.source_dtype) {
      return Error(ErrorKind::kDtypeMismatch, "tensors that become one have different dtypes")
          .Tensor(tensor.key)
          .Expected(DTypeName(recipe.source_dtype))
          .Actual(DTypeName(tensor.dtype));
    }
    CKPT_RETURN_IF_ERROR(CheckInside(layout::SourceBounds(nest), tensor.shape).Tensor(tensor.key));
  }
  return layout::ProveExactCover(target.shape, recipe.nests).Tensor(target.key);
}

// Passes numbers and length-prefixed texts to a hash, so that no two plans give the same byte
// sequence.
class PlanHasher {
 public:
  void Number(std::uint64_t value) {
    Bytes bytes;
    AppendLe(value, bytes);
    hasher_.Update(bytes);
  }
  void Text(std::string_view text) {
    Number(text.size());
    hasher_.Update(AsBytes(text));
  }
  void Numbers(DimsView values) {
    Number(values.size());
    for (const std::int64_t value : values) Number(static_cast<std::uint64_t>(value));
  }
  std::string Finish() { return hasher_.Finish(); }

 private:
  Hasher hasher_{HashAlgorithm::kXxh3};
};

}  // namespace

Status CheckWritePlan(const WritePlan& plan) {
  Status status = CheckNames(plan);
  Status tiling = CheckLateBytes(plan);
  if (tiling.ok()) tiling = CheckTiling(plan);
  status.Add(std::move(tiling));
  status.Add(CheckCompression(plan));
  std::size_t begin = 0;
  for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
    std::size_t end = begin;
    while (end < plan.items.size() && plan.items[end].tensor == t) ++end;
    status.Add(CheckItems(plan.tensors[t], std::span(plan.items).subspan(begin, end - begin)));
    begin = end;
  }
  if (begin != plan.items.size()) status.Add(PlanBug("the items are not in tensor order", ""));
  return status;
}

Status CheckRecipes(std::span<const TargetTensor> tensors, std::span<const TensorRecipe> recipes,
                    const CheckpointIndex& source) {
  if (recipes.size() != tensors.size()) {
    return PlanBug("every target tensor needs one recipe", "");
  }
  Status status;
  for (std::size_t t = 0; t < recipes.size(); ++t) {
    status.Add(CheckRecipe(tensors[t], recipes[t], source));
  }
  return status;
}

Status CheckPlan(const ConversionPlan& plan, const CheckpointIndex& source) {
  Status status = CheckWritePlan(plan.write);
  status.Add(CheckRecipes(plan.write.tensors, plan.recipes, source));
  return status;
}

std::string HashPlan(const ConversionPlan& plan) {
  PlanHasher hash;
  hash.Text(plan.source_identity);
  hash.Number(plan.write.files.size());
  for (const WriteFile& file : plan.write.files) {
    hash.Text(file.name);
    hash.Number(file.size_bytes);
  }
  for (const WriteItem& item : plan.write.items) {
    hash.Number(item.tensor);
    hash.Number(item.file);
    hash.Numbers(item.box.offsets);
    hash.Numbers(item.box.sizes);
    hash.Number(item.offset_bytes);
    hash.Number(item.payload_offset);
    hash.Number(item.size_bytes);
    hash.Number(item.is_plain ? 1 : 0);
  }
  if (const auto& compression = plan.write.compression) {
    hash.Text(compression->encoder);
    hash.Number(static_cast<std::uint64_t>(compression->zstd_level));
  }
  if (const auto& late = plan.write.late_bytes) {
    for (const std::uint32_t file : late->files) hash.Number(file);
    hash.Number(late->uses_crc32 ? 1 : 0);
  }
  for (const WriteLiteral& literal : plan.write.literals) {
    hash.Number(literal.file);
    hash.Number(literal.offset_bytes);
    hash.Text(AsText(literal.bytes));
  }
  for (std::size_t t = 0; t < plan.recipes.size(); ++t) {
    hash.Text(plan.write.tensors[t].key);
    hash.Text(DTypeName(plan.write.tensors[t].dtype));
    hash.Text(DTypeName(plan.recipes[t].source_dtype));
    hash.Number(plan.recipes[t].nests.size());
    for (const layout::Nest& nest : plan.recipes[t].nests) {
      hash.Number(nest.source);
      hash.Numbers(nest.target_origin);
      hash.Numbers(nest.source_origin);
      for (const layout::Loop& loop : nest.loops) {
        hash.Numbers(Dims{loop.extent, loop.target_dim, loop.target_step, loop.source_dim,
                          loop.source_step});
      }
    }
  }
  return hash.Finish();
}

}  // namespace ckpt
