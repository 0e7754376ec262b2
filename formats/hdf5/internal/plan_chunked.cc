#include "formats/hdf5/internal/plan_chunked.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/base/checked_math.h"
#include "core/base/units.h"
#include "core/codec/zstd.h"
#include "formats/hdf5/internal/file_structure.h"
#include "formats/hdf5/internal/format_numbers.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/new_data_sets.h"
#include "formats/hdf5/internal/structure_writer.h"

namespace ckpt::hdf5 {
namespace {

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

// What the structure is made of, besides the tensors of the plan.
struct BesideTensors {
  int zstd_level = 0;
  std::vector<MemoryTensor> known;
  EntryPaths paths;
  std::vector<NewDataSet> texts;
};

// The data sets of the plan's tensors, with the places of their frames.
std::vector<NewDataSet> PlacedSets(const BesideTensors& beside, const WritePlan& placed,
                                   std::span<const WrittenItem> written) {
  std::vector<NewDataSet> sets;
  for (const TargetTensor& tensor : placed.tensors) sets.push_back(DataSetOf(tensor, beside.paths));
  for (std::size_t i = 0; i < placed.items.size(); ++i) {
    const WriteItem& item = placed.items[i];
    NewDataSet& set = sets[item.tensor];
    const ItemExtent& extent = written[i].extent;
    if (item.is_plain) {
      set.at = extent.offset_bytes;
      if (item.payload_bytes != 0) set.crc32 = written[i].payload_crc32;
      continue;
    }
    if (!set.chunks) {
      set.chunks = {.rows = item.box.sizes[0], .extents = {}, .zstd_level = beside.zstd_level};
    }
    set.chunks->extents.push_back(extent);
  }
  return sets;
}

// Everything behind the frames, and the superblock.
std::vector<WriteLiteral> EncodeAround(const BesideTensors& beside, const WritePlan& placed,
                                       std::span<const WrittenItem> written) {
  std::vector<NewDataSet> sets = PlacedSets(beside, placed, written);
  std::uint64_t end = kAlignment;
  if (!written.empty()) {
    const ItemExtent& last = written.back().extent;
    end = last.offset_bytes + last.size_bytes;
  }
  std::vector<WriteLiteral> literals;
  AddKnown(beside.known, beside.paths, 0, end, sets, literals);
  sets.insert(sets.end(), beside.texts.begin(), beside.texts.end());
  const std::uint64_t tail_at = AlignUp(end, kAlignment);
  AppendStructure(0, tail_at, EncodeStructure({kTensorsGroup, kObjectsGroup}, sets, tail_at),
                  literals);
  return literals;
}

}  // namespace

Result<WritePlan> PlanChunked(const WeightsRequest& request) {
  WritePlan plan;
  // Room for the superblock.
  plan.files.push_back({.name = request.file_name, .size_bytes = kAlignment});
  plan.tensors = request.tensors;
  plan.framing = std::make_shared<WholeChunks>();
  for (std::uint32_t t = 0; t < plan.tensors.size(); ++t) {
    CKPT_RETURN_IF_ERROR(CutIntoChunks(t, plan));
  }
  const int level = *request.zstd_level;
  const auto encode = [beside = BesideTensors{.zstd_level = level,
                                              .known = request.known_tensors,
                                              .paths = request.paths,
                                              .texts = TextsOf(request)}](
                          const WritePlan& placed, std::span<const WrittenItem> written) {
    return EncodeAround(beside, placed, written);
  };
  plan.compression = {.zstd_level = level, .encoder = ZstdEncoderName()};
  const bool has_plain = std::ranges::any_of(plan.items, &WriteItem::is_plain);
  plan.late_bytes = {.files = {0}, .uses_crc32 = has_plain, .encode = encode};
  return plan;
}

}  // namespace ckpt::hdf5
