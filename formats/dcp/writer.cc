#include "formats/dcp/writer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/hash.h"
#include "core/codec/zstd.h"
#include "core/tensor/blocks.h"
#include "formats/dcp/internal/flat_blocks.h"
#include "formats/dcp/internal/item_framing.h"
#include "formats/dcp/internal/metadata_writer.h"
#include "formats/dcp/metadata.h"
#include "formats/target_tensors.h"
#include "formats/torch_save/torch_item.h"

namespace ckpt::dcp {
namespace {

constexpr std::uint64_t kItemAlignment = 64;
constexpr std::uint64_t kDefaultFileBytes = std::uint64_t{4} << 30;
constexpr std::uint64_t kMaxCompressedChunkBytes = std::uint64_t{64} << 20;
constexpr std::string_view kZstdTransform = "stream.zstd/1";

// Cuts a tensor into blocks of rows of at most `max_bytes` each, but at least one row, that end at
// these rows, too.
std::vector<PlacedRows> CutIntoRows(const TargetTensor& tensor, std::uint64_t max_bytes,
                                    std::span<const std::int64_t> ends) {
  const Box whole = WholeBox(tensor.shape);
  if (tensor.shape.empty() || IsEmpty(whole)) return {{.box = whole}};
  const std::int64_t rows = tensor.shape[0];
  const std::uint64_t row_bytes =
      static_cast<std::uint64_t>(NumElements(tensor.shape) / rows) * ElementBytes(tensor.dtype);
  const auto step = static_cast<std::int64_t>(
      std::clamp<std::uint64_t>(max_bytes / row_bytes, 1, static_cast<std::uint64_t>(rows)));
  std::vector<PlacedRows> blocks;
  std::int64_t row = 0;
  const auto cut_up_to = [&](std::int64_t end) {
    while (row < end) {
      Box box = whole;
      box.offsets[0] = row;
      box.sizes[0] = std::min(step, end - row);
      row += box.sizes[0];
      blocks.push_back({.box = std::move(box)});
    }
  };
  for (const std::int64_t end : ends) cut_up_to(std::min(end, rows));
  cut_up_to(rows);
  return blocks;
}

// Cuts a tensor into the blocks of a grid, in their order, and these into parts of at most
// `max_bytes`.
std::vector<PlacedRows> CutAlongGrid(const TargetTensor& tensor, DimsView grid,
                                     std::uint64_t max_bytes) {
  Box block = WholeBox(tensor.shape);
  for (std::size_t d = 0; d < grid.size(); ++d) block.sizes[d] /= grid[d];
  const auto max_elements = static_cast<std::int64_t>(
      std::min<std::uint64_t>(std::max<std::uint64_t>(max_bytes / ElementBytes(tensor.dtype), 1),
                              std::numeric_limits<std::int64_t>::max()));
  std::vector<PlacedRows> parts;
  for (std::size_t d = 0;;) {
    (void)ForEachBlock(block, max_elements, [&](const Box& part) {
      parts.push_back({.box = part});
      return OkStatus();
    });
    for (d = grid.size(); d-- > 0;) {
      block.offsets[d] += block.sizes[d];
      if (block.offsets[d] < tensor.shape[d]) break;
      block.offsets[d] = 0;
    }
    if (d >= grid.size()) return parts;  // all dims began again
  }
}

// The same blocks, in parts that are ranges of a flattened block.
std::vector<PlacedRows> CutFlat(const TargetTensor& tensor, DimsView grid, std::uint64_t max_bytes,
                                const std::vector<PlacedRows>& blocks) {
  const auto max_elements = static_cast<std::int64_t>(std::min<std::uint64_t>(
      max_bytes / ElementBytes(tensor.dtype), std::numeric_limits<std::int64_t>::max()));
  std::vector<PlacedRows> parts;
  for (const PlacedRows& block : blocks) {
    for (Box& box : CutIntoFlat(tensor.shape, grid, block.box, max_elements)) {
      parts.push_back({.box = std::move(box), .writer = block.writer});
    }
  }
  return parts;
}

// Appends items to data files. A writer begins its next file when the last one is full.
class FileLayout {
 public:
  FileLayout(std::uint64_t file_bytes, std::uint32_t max_files, WritePlan& plan)
      : file_bytes_(file_bytes), max_files_(max_files), plan_(plan) {}

  // Reserves `size_bytes` at an aligned place of one of the writer's files; returns (file, offset).
  // With `may_turn` it may be the writer's next file.
  std::pair<std::uint32_t, std::uint64_t> Place(std::uint32_t writer, std::uint64_t size_bytes,
                                                bool may_turn = true) {
    Writer& own = writers_[writer];
    const bool turns = may_turn && IsFull(own, size_bytes) && own.num_files < max_files_;
    if (own.num_files == 0 || turns) {
      own.file = static_cast<std::uint32_t>(plan_.files.size());
      plan_.files.push_back({.name = fmt::format("__{}_{}.distcp", writer, own.num_files++)});
    }
    WriteFile& file = plan_.files[own.file];
    const std::uint64_t at = AlignUp(file.size_bytes, kItemAlignment);
    file.size_bytes = at + size_bytes;
    return {own.file, at};
  }

 private:
  struct Writer {
    std::uint32_t num_files = 0;
    std::uint32_t file = 0;  // the last one
  };

  [[nodiscard]] bool IsFull(const Writer& writer, std::uint64_t size_bytes) const {
    return writer.num_files > 0 &&
           plan_.files[writer.file].size_bytes + size_bytes / 2 > file_bytes_;
  }

  std::uint64_t file_bytes_;
  std::uint32_t max_files_;
  WritePlan& plan_;
  std::map<std::uint32_t, Writer> writers_;
};

// The item of a tensor whose elements are known.
Bytes WholeItem(const MemoryTensor& tensor) {
  const torch_save::TensorItem item(tensor.dtype, tensor.shape);
  Bytes whole = item.head();
  Append(tensor.values, whole);
  Append(item.Tail(Crc32(tensor.values)), whole);
  return whole;
}

// What `.metadata` says besides the items.
struct MetadataRest {
  std::vector<WriteFile> files;  // under their names in there
  std::vector<StoredTensor> known_tensors;
  std::vector<StoredObject> objects;
  std::optional<std::vector<PlannerEntry>> planner_data;
  std::string save_id;
  BlockGrids flattened;

  [[nodiscard]] Bytes Encode(const WritePlan& plan, std::span<const WriteItem> items,
                             std::string_view transform) const {
    return EncodeMetadata({.files = files,
                           .tensors = plan.tensors,
                           .items = items,
                           .known_tensors = known_tensors,
                           .objects = objects,
                           .flattened = &flattened,
                           .item_transform = transform,
                           .planner_data = planner_data,
                           .checkpoint_id = "ckptkit",
                           .save_id = save_id});
  }
};

// The places in the plan are those of uncompressed items. The executor finds the real ones and then
// makes `.metadata`, the last file.
void Compress(int level, MetadataRest rest, WritePlan& plan) {
  for (WriteItem& item : plan.items) {
    item.payload_offset -= item.offset_bytes;
    item.offset_bytes = 0;
  }
  for (WriteFile& file : plan.files) file.size_bytes = 0;
  for (const WriteLiteral& literal : plan.literals) {
    plan.files[literal.file].size_bytes = literal.offset_bytes + literal.bytes.size();
  }
  const auto index_file = static_cast<std::uint32_t>(plan.files.size() - 1);
  const auto encode_index = [rest = std::move(rest), index_file](
                                const WritePlan& placed, std::span<const WrittenItem> written) {
    std::vector<WriteItem> items = placed.items;
    for (std::size_t i = 0; i < items.size(); ++i) {
      items[i].offset_bytes = written[i].extent.offset_bytes;
      items[i].size_bytes = written[i].extent.size_bytes;
    }
    return std::vector<WriteLiteral>{{.file = index_file,
                                      .offset_bytes = 0,
                                      .bytes = rest.Encode(placed, items, kZstdTransform)}};
  };
  plan.compression = {.zstd_level = level, .encoder = ZstdEncoderName()};
  plan.late_bytes = {.files = {index_file}, .encode = encode_index};
}

// Loaders only show it. It is computed from the content, so that the same checkpoint gives the same
// bytes.
std::string SaveId(std::string_view keys) {
  const std::string hex = HashHex(HashAlgorithm::kXxh3, AsBytes(keys));
  return fmt::format("{}-{}-4{}-8{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(13, 3),
                     hex.substr(17, 3), hex.substr(20, 12));
}

// Of the items, and of what stands around their elements.
Result<std::uint64_t> TotalBytes(const std::vector<TargetTensor>& tensors,
                                 std::span<const Bytes> known) {
  std::uint64_t total = 0;
  for (const Bytes& item : known) total += item.size();
  for (const TargetTensor& tensor : tensors) {
    CKPT_RETURN_IF_ERROR(CountBytes(tensor.shape, tensor.dtype).status());
    const std::uint64_t bytes = MeasureItem(tensor.dtype, tensor.shape).size_bytes;
    if (!CheckedAdd(total, bytes, &total)) {
      return Error(ErrorKind::kResource, "the checkpoint's size overflows 64 bits");
    }
  }
  return total;
}

Status CheckValues(const MemoryTensor& tensor) {
  CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes, CountBytes(tensor.shape, tensor.dtype));
  if (bytes == tensor.values.size()) return OkStatus();
  return Error(ErrorKind::kSizeMismatch, "the values of a tensor do not fit its shape")
      .Tensor(tensor.key)
      .Expected(fmt::format("{} bytes", bytes))
      .Actual(fmt::format("{} bytes", tensor.values.size()));
}

// Of all tensors and objects. Views into both arguments.
Result<std::set<std::string_view>> KeysOf(const std::vector<TargetTensor>& tensors,
                                          const WriterOptions& options) {
  std::set<std::string_view> keys;
  const auto add = [&](const std::string& key) -> Status {
    if (keys.insert(key).second) return OkStatus();
    return Error(ErrorKind::kAlreadyExists, "the same key twice").Tensor(key);
  };
  for (const TargetTensor& tensor : tensors) CKPT_RETURN_IF_ERROR(add(tensor.key));
  for (const MemoryTensor& tensor : options.known_tensors) CKPT_RETURN_IF_ERROR(add(tensor.key));
  for (const PickledEntry& object : options.objects) CKPT_RETURN_IF_ERROR(add(object.key));
  return keys;
}

// How large files and items become.
struct Sizes {
  std::uint64_t file_bytes = 0;
  std::uint32_t max_files = 0;  // of a writer
  std::uint64_t chunk_bytes = 0;
};

Sizes SizesOf(const WriterOptions& options, std::uint64_t total_bytes) {
  const std::uint64_t max_chunk_bytes =
      options.zstd_level ? std::min(options.max_chunk_bytes, kMaxCompressedChunkBytes)
                         : options.max_chunk_bytes;
  if (options.files > 0) {
    const auto files = static_cast<std::uint32_t>(options.files);
    const std::uint64_t file_bytes = CeilDiv(total_bytes, files);
    return {.file_bytes = file_bytes,
            .max_files = files,
            .chunk_bytes = std::max<std::uint64_t>(std::min(max_chunk_bytes, file_bytes), 1)};
  }
  const std::uint64_t file_bytes =
      options.max_file_bytes == 0 ? kDefaultFileBytes : options.max_file_bytes;
  return {.file_bytes = file_bytes,
          .max_files = std::numeric_limits<std::uint32_t>::max(),
          .chunk_bytes = std::min(max_chunk_bytes, file_bytes)};
}

// Of objects, and of tensors whose elements are known.
std::vector<Bytes> KnownItems(const WriterOptions& options) {
  std::vector<Bytes> items;
  for (const PickledEntry& object : options.objects) {
    items.push_back(torch_save::ObjectItem(object.value.pickle, object.value.storages));
  }
  for (const MemoryTensor& tensor : options.known_tensors) items.push_back(WholeItem(tensor));
  return items;
}

// `items`: those of KnownItems.
void PlaceKnown(const WriterOptions& options, std::vector<Bytes> items, FileLayout& layout,
                WritePlan& plan, MetadataRest& rest) {
  auto next = items.begin();
  for (const PickledEntry& object : options.objects) {
    Bytes item = std::move(*next++);
    const auto [file, offset] = layout.Place(0, item.size());
    rest.objects.push_back(
        {.key = object.key, .file = file, .offset_bytes = offset, .size_bytes = item.size()});
    plan.literals.push_back({.file = file, .offset_bytes = offset, .bytes = std::move(item)});
  }
  for (const MemoryTensor& tensor : options.known_tensors) {
    Bytes item = std::move(*next++);
    const auto [file, offset] = layout.Place(0, item.size());
    rest.known_tensors.push_back({.key = tensor.key,
                                  .dtype = tensor.dtype,
                                  .shape = tensor.shape,
                                  .file = file,
                                  .offset_bytes = offset,
                                  .size_bytes = item.size()});
    plan.literals.push_back({.file = file, .offset_bytes = offset, .bytes = std::move(item)});
  }
}

// The chunks of tensor `t`, in the order in which they are stored.
std::vector<PlacedRows> ChunksOf(const WriterOptions& options, std::size_t t,
                                 const TargetTensor& tensor, std::uint64_t chunk_bytes) {
  std::vector<PlacedRows> chunks;
  if (!options.placed.empty()) {
    chunks = options.placed[t];
  } else if (const auto grid = options.grids.find(tensor.key); grid != options.grids.end()) {
    chunks = CutAlongGrid(tensor, grid->second, chunk_bytes);
  } else {
    const auto ends = options.chunk_ends.find(tensor.key);
    chunks = CutIntoRows(
        tensor, chunk_bytes,
        ends == options.chunk_ends.end() ? std::span<const std::int64_t>() : ends->second);
  }
  const auto flat = options.flattened.find(tensor.key);
  return flat == options.flattened.end() ? chunks
                                         : CutFlat(tensor, flat->second, chunk_bytes, chunks);
}

void PlaceTensors(const WriterOptions& options, std::uint64_t chunk_bytes, FileLayout& layout,
                  WritePlan& plan) {
  for (std::uint32_t t = 0; t < plan.tensors.size(); ++t) {
    bool is_first = true;
    for (const auto& [box, writer] : ChunksOf(options, t, plan.tensors[t], chunk_bytes)) {
      const ItemSize size =
          MeasureItem(plan.tensors[t].dtype, ItemShape(options.flattened, plan.tensors[t], box));
      // Of a compressed file one process writes all, so no tensor may tie one file to the next.
      const bool may_turn = !options.zstd_level || is_first;
      is_first = false;
      const auto [file, offset] = layout.Place(writer, size.size_bytes, may_turn);
      plan.items.push_back({.tensor = t,
                            .file = file,
                            .box = box,
                            .offset_bytes = offset,
                            .payload_offset = offset + size.payload_offset,
                            .payload_bytes = size.payload_bytes,
                            .size_bytes = size.size_bytes});
    }
  }
}

// Where loaders without a template put each entry. Torch flattens the object that it makes of these
// paths, and looks each entry up by its steps, joined with points. So a key that is another text
// stands on top, such as `['a.b']`, which is told apart from `['a']['b']`. Lists in which it would
// look for others become mappings.
EntryPaths PathsOf(const std::set<std::string_view>& keys, const WriterOptions& options) {
  EntryPaths paths;
  bool is_moved = false;
  for (const std::string_view view : keys) {
    const std::string key(view);
    EntryPath path = options.path_of ? WithTextKeys(options.path_of(key)) : EntryPath{key};
    if (JoinSteps(path) != key) {
      path = EntryPath{key};
      is_moved = true;
    }
    paths.emplace(key, std::move(path));
  }
  std::set<std::string_view> objects;
  for (const PickledEntry& object : options.objects) objects.insert(object.key);
  const auto is_tensor = [&](const std::string& key) { return !objects.contains(key); };
  MakeMappings(ListsLostToTorch(paths, is_tensor), paths);
  if (is_moved && !MakeOneObject(paths)) {
    for (auto& [key, path] : paths) path = EntryPath{key};
  }
  return paths;
}

void DescribeKeys(const std::set<std::string_view>& keys, const WriterOptions& options,
                  MetadataRest& rest) {
  std::string all_keys;
  for (const std::string_view key : keys) all_keys.append(key).append("\n");
  rest.save_id = SaveId(all_keys);
  if (!options.stores_paths) return;
  rest.planner_data.emplace();
  for (const auto& [key, path] : PathsOf(keys, options)) {
    rest.planner_data->push_back({.key = key, .path = path});
  }
}

// The last file.
void AddMetadata(const WriterOptions& options, MetadataRest rest, WritePlan& plan) {
  rest.files = plan.files;
  plan.files.push_back({.name = ".metadata"});
  if (options.zstd_level) return Compress(*options.zstd_level, std::move(rest), plan);
  Bytes metadata = rest.Encode(plan, plan.items, {});
  plan.files.back().size_bytes = metadata.size();
  plan.literals.push_back({.file = static_cast<std::uint32_t>(plan.files.size() - 1),
                           .offset_bytes = 0,
                           .bytes = std::move(metadata)});
}

}  // namespace

Result<WritePlan> PlanDcp(std::vector<TargetTensor> tensors, const WriterOptions& options) {
  WritePlan plan;
  plan.framing = std::make_shared<TorchItemFraming>(options.flattened);
  plan.tensors = std::move(tensors);
  plan.known_tensors = DescribeKnown(options.known_tensors);

  for (const MemoryTensor& tensor : options.known_tensors) {
    CKPT_RETURN_IF_ERROR(CheckValues(tensor));
  }
  CKPT_ASSIGN_OR_RETURN(const std::set<std::string_view> keys, KeysOf(plan.tensors, options));

  std::vector<Bytes> known = KnownItems(options);
  CKPT_ASSIGN_OR_RETURN(const std::uint64_t total_bytes, TotalBytes(plan.tensors, known));
  const Sizes sizes = SizesOf(options, total_bytes);
  FileLayout layout(sizes.file_bytes, sizes.max_files, plan);
  MetadataRest rest;
  rest.flattened = options.flattened;
  PlaceKnown(options, std::move(known), layout, plan, rest);
  PlaceTensors(options, sizes.chunk_bytes, layout, plan);
  DescribeKeys(keys, options, rest);
  AddMetadata(options, std::move(rest), plan);
  for (WriteFile& file : plan.files) file.name = options.directory + file.name;
  return plan;
}

}  // namespace ckpt::dcp
