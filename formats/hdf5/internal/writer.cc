#include "formats/hdf5/internal/writer.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/hash.h"
#include "core/base/units.h"
#include "core/checkpoint/entry_path_json.h"
#include "core/codec/zstd.h"
#include "formats/hdf5/internal/data_files.h"
#include "formats/hdf5/internal/format_numbers.h"
#include "formats/hdf5/internal/held_numbers.h"
#include "formats/hdf5/internal/held_path.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/parts.h"
#include "formats/hdf5/internal/structure_writer.h"
#include "formats/target_tensors.h"

namespace ckpt::hdf5 {
namespace {

constexpr std::uint64_t kAlignment = 64;

bool IsOnTop(const std::string& key, const EntryPath& path) { return path == EntryPath{key}; }

Status CheckTensors(const WeightsRequest& request) {
  const std::vector<TargetTensor>& tensors = request.tensors;
  Status status = CountTargetBytes(tensors).status();
  std::set<std::string_view> keys;
  for (const TargetTensor& tensor : tensors) {
    keys.insert(tensor.key);
    if (tensor.shape.size() > kMaxRank) {
      status.Add(Error(ErrorKind::kUnsupported, "HDF5 has no more than 32 dims")
                     .Tensor(tensor.key)
                     .Actual(FormatDims(tensor.shape)));
    }
  }
  for (const std::string_view key : keys) {
    if (key.find('\0') == key.npos) continue;
    status.Add(Error(ErrorKind::kUnsupported, "a name in HDF5 ends at a byte 0, which a key holds")
                   .Tensor(key)
                   .Hint("ckpt-convert --drop leaves it out, with * for the byte"));
  }
  const auto add = [&](const std::string& key) {
    if (keys.insert(key).second) return;
    status.Add(Error(ErrorKind::kAlreadyExists, "the same key twice").Tensor(key));
  };
  for (const MemoryTensor& tensor : request.known_tensors) add(tensor.key);
  for (const CarriedObject& object : request.carried_objects) add(object.key);
  for (const auto& [key, path] : request.paths) {
    if (IsOnTop(key, path) || !keys.contains(key) || HasJson(path)) continue;
    status.Add(Error(ErrorKind::kUnsupported,
                     "the place in a nested object cannot be written: a key is not UTF-8")
                   .Tensor(key)
                   .Hint("ckpt-convert --rename puts the entry on top, --drop leaves it out"));
  }
  return status;
}

// An entry that stands on top of the nested object needs no attribute.
void AddPath(const EntryPaths& paths, const std::string& key, NewDataSet& set) {
  const auto found = paths.find(key);
  if (found == paths.end() || IsOnTop(key, found->second)) return;
  set.attributes.emplace_back(kPathAttribute, EncodePath(found->second));
}

// The data sets that hold text: objects, and where the checkpoint came from.
std::vector<NewDataSet> TextsOf(const WeightsRequest& request) {
  std::vector<NewDataSet> texts;
  for (const CarriedObject& object : request.carried_objects) {
    texts.push_back({.group = kObjectsGroup,
                     .name = LinkNameOf(object.key),
                     .shape = {},
                     .attributes = {{kKeyAttribute, object.key}, {kTypeAttribute, object.type}},
                     .text = object.json});
    if (!object.numbers.empty()) {
      texts.back().attributes.emplace_back(kNumbersAttribute, EncodeNumbers(object.numbers));
    }
    AddPath(request.paths, object.key, texts.back());
  }
  if (!request.origin.empty()) {
    texts.push_back({.group = {}, .name = kOriginName, .shape = {}, .text = request.origin});
  }
  return texts;
}

NewDataSet DataSetOf(const TargetTensor& tensor, const EntryPaths& paths) {
  NewDataSet set{.group = kTensorsGroup,
                 .name = LinkNameOf(tensor.key),
                 .dtype = tensor.dtype,
                 .shape = tensor.shape,
                 .attributes = {{kKeyAttribute, tensor.key},
                                {kDtypeAttribute, std::string(DTypeName(tensor.dtype))}}};
  AddPath(paths, tensor.key, set);
  return set;
}

// Lays tensors whose elements are known behind the `end` of a file, which then is theirs.
void AddKnown(std::span<const MemoryTensor> tensors, const EntryPaths& paths, std::uint32_t file,
              std::uint64_t& end, std::vector<NewDataSet>& sets,
              std::vector<WriteLiteral>& literals) {
  for (const MemoryTensor& tensor : tensors) {
    const std::uint64_t at = AlignUp(end, kAlignment);
    sets.push_back(DataSetOf({tensor.key, tensor.dtype, tensor.shape}, paths));
    sets.back().at = at;
    if (!tensor.values.empty()) sets.back().crc32 = Crc32(tensor.values);
    literals.push_back({.file = file, .offset_bytes = at, .bytes = tensor.values});
    end = at + tensor.values.size();
  }
}

// What describes the data sets of a file.
struct FileStructure {
  std::uint32_t file = 0;
  std::vector<std::string> groups;
  std::vector<NewDataSet> data_sets;
  // Positions of data sets by those of the items that are all elements of one. Their checksums are
  // known when the items are written.
  std::map<std::size_t, std::size_t> set_of_item = {};
  std::uint64_t tail_at = 0;
};

void AppendLiterals(const FileStructure& of, NewStructure encoded,
                    std::vector<WriteLiteral>& literals) {
  literals.push_back({.file = of.file, .offset_bytes = 0, .bytes = std::move(encoded.superblock)});
  literals.push_back(
      {.file = of.file, .offset_bytes = of.tail_at, .bytes = std::move(encoded.tail)});
}

// Ends each file with its structure.
void AddStructures(std::vector<FileStructure> structures, WritePlan& plan) {
  std::vector<FileStructure> late;
  std::vector<std::uint32_t> late_files;
  for (FileStructure& structure : structures) {
    WriteFile& file = plan.files[structure.file];
    structure.tail_at = AlignUp(file.size_bytes, kAlignment);
    for (const auto& [item, set] : structure.set_of_item) structure.data_sets[set].crc32 = 0;
    NewStructure encoded =
        EncodeStructure(structure.groups, structure.data_sets, structure.tail_at);
    file.size_bytes = structure.tail_at + encoded.tail.size();
    if (structure.set_of_item.empty()) {
      AppendLiterals(structure, std::move(encoded), plan.literals);
    } else {
      late_files.push_back(structure.file);
      late.push_back(std::move(structure));
    }
  }
  if (late.empty()) return;
  const auto shared = std::make_shared<const std::vector<FileStructure>>(std::move(late));
  const auto encode = [shared](const WritePlan& /*plan*/, std::span<const WrittenItem> written) {
    std::vector<WriteLiteral> literals;
    for (FileStructure structure : *shared) {
      for (const auto& [item, set] : structure.set_of_item) {
        structure.data_sets[set].crc32 = written[item].payload_crc32;
      }
      AppendLiterals(structure,
                     EncodeStructure(structure.groups, structure.data_sets, structure.tail_at),
                     literals);
    }
    return literals;
  };
  plan.late_bytes = {.files = std::move(late_files), .uses_crc32 = true, .encode = encode};
}

// A file of data sets whose elements lie in other files.
WritePlan PlanStructure(const WeightsRequest& request, std::vector<NewDataSet> sets) {
  WritePlan plan;
  plan.files.push_back({.name = request.file_name, .size_bytes = kSuperblockBytes});
  AddKnown(request.known_tensors, request.paths, 0, plan.files[0].size_bytes, sets, plan.literals);
  for (NewDataSet& text : TextsOf(request)) sets.push_back(std::move(text));
  AddStructures(
      {{.file = 0, .groups = {kTensorsGroup, kObjectsGroup}, .data_sets = std::move(sets)}}, plan);
  return plan;
}

// One file with every tensor in one piece.
WritePlan PlanContiguous(const WeightsRequest& request) {
  WritePlan plan;
  plan.files.push_back({.name = request.file_name, .size_bytes = kSuperblockBytes});
  plan.tensors = request.tensors;
  FileStructure structure{.groups = {kTensorsGroup, kObjectsGroup}, .data_sets = {}};
  std::vector<NewDataSet>& sets = structure.data_sets;
  std::uint64_t& end = plan.files.front().size_bytes;
  for (std::uint32_t t = 0; t < plan.tensors.size(); ++t) {
    const TargetTensor& tensor = plan.tensors[t];
    const std::uint64_t bytes = NumBytes(tensor.shape, tensor.dtype);
    const std::uint64_t at = AlignUp(end, kAlignment);
    plan.items.push_back({.tensor = t,
                          .file = 0,
                          .box = WholeBox(tensor.shape),
                          .offset_bytes = at,
                          .payload_offset = at,
                          .payload_bytes = bytes,
                          .size_bytes = bytes});
    end = at + bytes;
    sets.push_back(DataSetOf(tensor, request.paths));
    sets.back().at = at;
    if (bytes != 0 && !request.is_shared) structure.set_of_item[t] = t;
  }
  AddKnown(request.known_tensors, request.paths, 0, end, sets, plan.literals);
  for (NewDataSet& text : TextsOf(request)) sets.push_back(std::move(text));
  AddStructures({std::move(structure)}, plan);
  return plan;
}

// Whether the boxes are rows of the tensor, one behind the other.
bool AreRows(const std::vector<LinkedBox>& links, DimsView shape) {
  std::int64_t row = 0;
  for (const LinkedBox& link : links) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const bool in_place = d == 0 ? link.box.offsets[0] == row
                                   : link.box.offsets[d] == 0 && link.box.sizes[d] == shape[d];
      if (!in_place) return false;
    }
    if (!shape.empty()) row += link.box.sizes[0];
  }
  return true;
}

Segment SegmentOf(const LinkedBox& link) {
  return {.file = link.file, .offset_bytes = link.offset_bytes, .size_bytes = link.size_bytes};
}

// A reader follows a link only into a file that is named as weights are (DataFiles::Resolve).
Status CheckLinks(const WeightsRequest& request) {
  Status status;
  for (std::size_t t = 0; t < request.tensors.size(); ++t) {
    for (const LinkedBox& link : (*request.links)[t]) {
      if (IsNamedAsWeights(link.file)) continue;
      status.Add(Error(ErrorKind::kUnsupported,
                       "the tensor cannot be linked: its file is not named as weights are, and no "
                       "reader follows a link to it")
                     .File(link.file)
                     .Tensor(request.tensors[t].key)
                     .Expected("one of " + NamesOfWeights())
                     .Hint("ckpt-convert to-hdf5 without --link copies it"));
      break;
    }
  }
  return status;
}

// The structure alone; elements stay where they are.
WritePlan PlanLinked(const WeightsRequest& request) {
  // A list of external files is one message of at most 64 KiB.
  constexpr std::size_t kMaxSegments = 2000;
  std::vector<NewDataSet> sets;
  std::size_t num_chunks = 0;
  for (std::size_t t = 0; t < request.tensors.size(); ++t) {
    const TargetTensor& tensor = request.tensors[t];
    std::vector<LinkedBox> links = (*request.links)[t];
    std::ranges::sort(links, {}, [](const LinkedBox& link) { return link.box.offsets; });
    NewDataSet set = DataSetOf(tensor, request.paths);
    if (links.size() <= kMaxSegments && AreRows(links, tensor.shape)) {
      for (const LinkedBox& link : links) set.segments.push_back(SegmentOf(link));
    } else {
      for (const LinkedBox& link : links) {
        const std::string name = std::to_string(num_chunks++);
        sets.push_back({.group = kChunksGroup,
                        .name = name,
                        .dtype = tensor.dtype,
                        .shape = link.box.sizes,
                        .segments = {SegmentOf(link)}});
        set.parts.push_back({.file = ".",
                             .data_set = fmt::format("/{}/{}", kChunksGroup, name),
                             .from = std::nullopt,
                             .to = link.box});
      }
    }
    sets.push_back(std::move(set));
  }
  return PlanStructure(request, std::move(sets));
}

// Rows that fill a chunk of about this size; one at least.
constexpr std::uint64_t kChunkBytes = 16 * kMiB;

// Every chunk of a data set has the same number of rows: the last item gets zeros for those that
// the tensor lacks.
class WholeChunks final : public ItemFraming {
 public:
  [[nodiscard]] Bytes Head(const TargetTensor& /*t*/, const WriteItem& /*i*/) const override {
    return {};
  }
  [[nodiscard]] Bytes Tail(const TargetTensor& /*t*/, const WriteItem& item,
                           std::uint32_t /*c*/) const override {
    return Bytes(item.size_bytes - item.payload_bytes);
  }
  [[nodiscard]] bool needs_crc32() const override { return false; }
};

Status CutIntoChunks(std::uint32_t position, WritePlan& plan) {
  const TargetTensor& tensor = plan.tensors[position];
  const std::uint64_t bytes = NumBytes(tensor.shape, tensor.dtype);
  WriteItem item{.tensor = position, .box = WholeBox(tensor.shape), .payload_bytes = bytes};
  // Neither a single element nor no elements can be cut into chunks.
  if (tensor.shape.empty() || bytes == 0) {
    item.size_bytes = bytes;
    item.is_plain = true;
    plan.items.push_back(std::move(item));
    return OkStatus();
  }
  const auto rows = static_cast<std::uint64_t>(tensor.shape[0]);
  const std::uint64_t row_bytes = bytes / rows;
  if (row_bytes > kMaxChunkBytes) {
    return Error(ErrorKind::kUnsupported, "a row of the tensor is too large for a compressed chunk")
        .Tensor(tensor.key)
        .Expected("less than 4 GiB")
        .Actual(FormatByteSize(row_bytes));
  }
  const std::uint64_t step = std::clamp<std::uint64_t>(kChunkBytes / row_bytes, 1, rows);
  for (std::uint64_t row = 0; row < rows; row += step) {
    const std::uint64_t count = std::min(step, rows - row);
    item.box.offsets[0] = static_cast<std::int64_t>(row);
    item.box.sizes[0] = static_cast<std::int64_t>(count);
    item.payload_bytes = count * row_bytes;
    item.size_bytes = step * row_bytes;
    plan.items.push_back(item);
  }
  return OkStatus();
}

// One file of zstd frames, one a chunk, each of which has a checksum. The structure is made when
// their places are known.
Result<WritePlan> PlanCompressed(const WeightsRequest& request) {
  WritePlan plan;
  // Room for the superblock.
  plan.files.push_back({.name = request.file_name, .size_bytes = kAlignment});
  plan.tensors = request.tensors;
  plan.framing = std::make_shared<WholeChunks>();
  for (std::uint32_t t = 0; t < plan.tensors.size(); ++t) {
    CKPT_RETURN_IF_ERROR(CutIntoChunks(t, plan));
  }
  const int level = *request.zstd_level;
  const auto encode_index = [level, known = request.known_tensors, paths = request.paths,
                             texts = TextsOf(request)](const WritePlan& placed,
                                                       std::span<const WrittenItem> written) {
    std::vector<NewDataSet> sets;
    for (const TargetTensor& tensor : placed.tensors) sets.push_back(DataSetOf(tensor, paths));
    std::uint64_t end = kAlignment;
    for (std::size_t i = 0; i < placed.items.size(); ++i) {
      const WriteItem& item = placed.items[i];
      NewDataSet& set = sets[item.tensor];
      const ItemExtent& extent = written[i].extent;
      end = extent.offset_bytes + extent.size_bytes;
      if (item.is_plain) {
        set.at = extent.offset_bytes;
        if (item.payload_bytes != 0) set.crc32 = written[i].payload_crc32;
        continue;
      }
      if (!set.chunks) set.chunks = {.rows = item.box.sizes[0], .extents = {}, .zstd_level = level};
      set.chunks->extents.push_back(extent);
    }
    std::vector<WriteLiteral> literals;
    AddKnown(known, paths, 0, end, sets, literals);
    sets.insert(sets.end(), texts.begin(), texts.end());
    const std::uint64_t tail_at = AlignUp(end, kAlignment);
    NewStructure structure = EncodeStructure({kTensorsGroup, kObjectsGroup}, sets, tail_at);
    literals.push_back({.file = 0, .offset_bytes = 0, .bytes = std::move(structure.superblock)});
    literals.push_back({.file = 0, .offset_bytes = tail_at, .bytes = std::move(structure.tail)});
    return literals;
  };
  plan.compression = {.zstd_level = level, .encoder = ZstdEncoderName()};
  const bool has_plain = std::ranges::any_of(plan.items, &WriteItem::is_plain);
  plan.late_bytes = {.files = {0}, .uses_crc32 = has_plain, .encode = encode_index};
  return plan;
}

// Rows of a tensor in a file.
struct PlacedRows {
  std::uint32_t tensor = 0;
  std::uint64_t file = 0;
  Box box;
};

// Cuts tensors where a file is full; what is small against a file stays whole.
std::vector<PlacedRows> Distribute(const std::vector<TargetTensor>& tensors,
                                   std::uint64_t file_bytes) {
  constexpr std::uint64_t kSmallPart = 8;
  std::vector<PlacedRows> placed;
  std::uint64_t file = 0;
  std::uint64_t used = 0;
  for (std::uint32_t t = 0; t < tensors.size(); ++t) {
    const Box whole = WholeBox(tensors[t].shape);
    const std::uint64_t bytes = NumBytes(tensors[t].shape, tensors[t].dtype);
    if (used >= file_bytes) ++file, used = 0;
    if (tensors[t].shape.empty() || bytes <= file_bytes / kSmallPart) {
      placed.push_back({.tensor = t, .file = file, .box = whole});
      used += bytes;
      continue;
    }
    const auto rows = static_cast<std::uint64_t>(tensors[t].shape[0]);
    const std::uint64_t row_bytes = bytes / rows;
    for (std::uint64_t row = 0; row < rows;) {
      if (used >= file_bytes) ++file, used = 0;
      const std::uint64_t fits = CeilDiv(file_bytes - used, row_bytes);
      const std::uint64_t count = std::min(fits, rows - row);
      Box box = whole;
      box.offsets[0] = static_cast<std::int64_t>(row);
      box.sizes[0] = static_cast<std::int64_t>(count);
      placed.push_back({.tensor = t, .file = file, .box = std::move(box)});
      used += count * row_bytes;
      row += count;
    }
  }
  return placed;
}

// Files of elements, and one that shows all of them as virtual data sets.
WritePlan PlanParts(const WeightsRequest& request) {
  std::uint64_t total = 0;
  for (const TargetTensor& tensor : request.tensors) total += NumBytes(tensor.shape, tensor.dtype);
  std::uint64_t file_bytes = request.max_file_bytes;
  if (request.files > 0) file_bytes = CeilDiv(total, static_cast<std::uint64_t>(request.files));
  const std::vector<PlacedRows> placed =
      Distribute(request.tensors, std::max<std::uint64_t>(file_bytes, 1));
  const std::uint64_t num_parts = placed.empty() ? 1 : placed.back().file + 1;

  WritePlan plan;
  plan.tensors = request.tensors;
  plan.files.push_back({.name = request.file_name, .size_bytes = kSuperblockBytes});
  for (std::string& name : PartNames(request.file_name, num_parts, request.names_in_use)) {
    plan.files.push_back({.name = std::move(name), .size_bytes = kSuperblockBytes});
  }
  std::vector<NewDataSet> shown;
  for (const TargetTensor& tensor : plan.tensors) shown.push_back(DataSetOf(tensor, request.paths));
  std::vector<FileStructure> stored(plan.files.size());
  for (const PlacedRows& rows : placed) {
    const TargetTensor& tensor = plan.tensors[rows.tensor];
    const auto f = static_cast<std::uint32_t>(rows.file + 1);
    const std::uint64_t bytes = NumBytes(rows.box.sizes, tensor.dtype);
    const std::uint64_t at = AlignUp(plan.files[f].size_bytes, kAlignment);
    plan.files[f].size_bytes = at + bytes;
    plan.items.push_back({.tensor = rows.tensor,
                          .file = f,
                          .box = rows.box,
                          .offset_bytes = at,
                          .payload_offset = at,
                          .payload_bytes = bytes,
                          .size_bytes = bytes});
    if (bytes == 0) continue;
    std::vector<NewDataSet>& sets = stored[f].data_sets;
    const std::string name = std::to_string(sets.size());
    if (!request.is_shared) stored[f].set_of_item[plan.items.size() - 1] = sets.size();
    sets.push_back({.group = kChunksGroup,
                    .name = name,
                    .dtype = tensor.dtype,
                    .shape = rows.box.sizes,
                    .at = at});
    const bool is_whole = rows.box.sizes == tensor.shape;
    shown[rows.tensor].parts.push_back({.file = plan.files[f].name,
                                        .data_set = fmt::format("/{}/{}", kChunksGroup, name),
                                        .from = std::nullopt,
                                        .to = is_whole ? std::nullopt : std::optional(rows.box)});
  }
  AddKnown(request.known_tensors, request.paths, 0, plan.files[0].size_bytes, shown, plan.literals);
  for (NewDataSet& text : TextsOf(request)) shown.push_back(std::move(text));
  stored[0] = {.groups = {kTensorsGroup, kObjectsGroup}, .data_sets = std::move(shown)};
  for (std::uint32_t f = 1; f < plan.files.size(); ++f) {
    stored[f].file = f;
    stored[f].groups = {kChunksGroup};
  }
  AddStructures(std::move(stored), plan);
  return plan;
}

}  // namespace

Result<PlannedCheckpoint> PlanHdf5(WeightsRequest request) {
  const bool has_parts = request.files > 1 || request.max_file_bytes != 0;
  if (request.zstd_level && has_parts) {
    return Error(ErrorKind::kUsage, "a compressed HDF5 checkpoint is one file")
        .Hint("leave ckpt-convert's --files and --max-shard-size out, or --compress");
  }
  CKPT_RETURN_IF_ERROR(CheckTensors(request));
  if (request.links) CKPT_RETURN_IF_ERROR(CheckLinks(request));
  PlannedCheckpoint planned;
  if (request.zstd_level) {
    CKPT_ASSIGN_OR_RETURN(planned.plan, PlanCompressed(request));
  } else {
    planned.plan = request.links ? PlanLinked(request)
                   : has_parts   ? PlanParts(request)
                                 : PlanContiguous(request);
  }
  planned.plan.known_tensors = DescribeKnown(request.known_tensors);
  return planned;
}

}  // namespace ckpt::hdf5
