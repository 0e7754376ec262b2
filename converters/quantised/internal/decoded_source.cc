#include "converters/quantised/internal/decoded_source.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/units.h"
#include "core/checkpoint/chunk_copies.h"
#include "core/checkpoint/copy_index.h"
#include "core/checkpoint/read.h"
#include "core/checkpoint/view_source.h"
#include "core/io/storage.h"
#include "core/tensor/blocks.h"
#include "core/tensor/box.h"
#include "core/tensor/cast.h"
#include "core/tensor/fp8_blocks.h"
#include "core/tensor/mxfp4.h"

namespace ckpt::internal {
namespace {

// How many values are decoded at a time, if a row of blocks does not have more. Such a row is
// decoded as a whole up to the second number: in the file it lies together.
constexpr std::int64_t kPartElements = 2 * kMiB;
constexpr std::int64_t kMaxPartElements = 16 * kMiB;

// The values of some blocks of the grid.
Box ValuesOf(const Box& grid, const CodedTensor& tensor) {
  Box values = grid;
  for (std::size_t d = 0; d < grid.sizes.size(); ++d) {
    const std::int64_t end = (grid.offsets[d] + grid.sizes[d]) * tensor.block[d];
    values.offsets[d] = grid.offsets[d] * tensor.block[d];
    values.sizes[d] = std::min(end, tensor.shape[d]) - values.offsets[d];
  }
  return values;
}

// The blocks that hold `values`, which begin and end with blocks.
Box GridOf(const Box& values, const CodedTensor& tensor) {
  Box grid = values;
  for (std::size_t d = 0; d < values.sizes.size(); ++d) {
    grid.offsets[d] = values.offsets[d] / tensor.block[d];
    grid.sizes[d] = (values.sizes[d] + tensor.block[d] - 1) / tensor.block[d];
  }
  return grid;
}

class DecodedSource final : public ViewSource {
 public:
  explicit DecodedSource(std::shared_ptr<const CheckpointSource> coded)
      : ViewSource(std::move(coded)) {}

  Status Build(const std::vector<CodedTensor>& tensors) {
    const CheckpointIndex& stored = below().index();
    std::set<const GlobalTensor*> replaced;
    for (const CodedTensor& tensor : tensors) {
      const std::size_t copies = std::max(
          {stored.NumCopies(*tensor.codes), stored.NumCopies(*tensor.scales), std::size_t{1}});
      tensors_[tensor.codes->key] = {.stored = tensor, .copies = copies};
      replaced.insert({tensor.codes, tensor.scales});
    }
    IndexBuilder builder;
    BeginCopy(stored, builder);
    for (const GlobalTensor& tensor : stored.tensors()) {
      if (!replaced.contains(&tensor)) CopyTensor(stored, tensor, builder);
    }
    for (const auto& [key, tensor] : tensors_) {
      builder.AddTensor(key, DType::kBfloat16, tensor.stored.shape);
      for (std::size_t copy = 0; copy < tensor.copies; ++copy) {
        AddParts(tensor.stored, copy, builder);
      }
    }
    CopyObjects(stored, builder);
    CKPT_ASSIGN_OR_RETURN(CheckpointIndex index, builder.Build());
    SetIndex(std::move(index));
    return OkStatus();
  }

  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override {
    const auto coded = tensors_.find(tensor.key);
    if (coded == tensors_.end()) return ViewSource::Locate(tensor, chunk);
    const Box values = index().box(chunk);
    const std::size_t of_copy = tensor.num_chunks / coded->second.copies;
    CKPT_ASSIGN_OR_RETURN(
        Bytes decoded, Decode(coded->second.stored, values, PositionOf(tensor, chunk) / of_copy));
    StoredArray array{.file = nullptr,
                      .dtype = DType::kBfloat16,
                      .strides = ContiguousStrides(values.sizes),
                      .resident_bytes = decoded.size()};
    array.file = MakeMemoryFile(index().files()[chunk.file], std::move(decoded));
    return array;
  }

 private:
  struct Decoded {
    CodedTensor stored;
    std::size_t copies = 1;  // of codes or scales, at most
  };

  // A chunk for each part that is decoded at a time, from this copy of codes and scales.
  void AddParts(const CodedTensor& tensor, std::size_t copy, IndexBuilder& builder) const {
    const std::span<const Chunk> items = below().index().chunks(*tensor.codes);
    if (items.empty() || IsEmpty(WholeBox(tensor.shape))) return;
    const Chunk& item = ChunkCopies(items, copy).Of(items.front());
    const EncodingId encoding =
        builder.AddEncoding(below().index().encoding(item) +
                            (tensor.coding == Coding::kMxfp4 ? "+mxfp4" : "+fp8_blocks"));
    const std::int64_t in_block = NumElements(tensor.block);
    const std::int64_t in_row = tensor.scales->shape.back();
    std::int64_t blocks = std::max<std::int64_t>(kPartElements / in_block, 1);
    if (blocks < in_row && in_row <= kMaxPartElements / in_block) blocks = in_row;
    const auto add = [&](const Box& grid) {
      builder.AddChunk(ValuesOf(grid, tensor), item.file, encoding, item.offset_bytes,
                       item.size_bytes);
      return OkStatus();
    };
    CKPT_CHECK(ForEachBlock(WholeBox(tensor.scales->shape), blocks, add).ok());
  }

  Result<Bytes> ReadStored(const GlobalTensor& tensor, const Box& box, std::size_t copy) const {
    Bytes bytes(NumBytes(box.sizes, tensor.dtype));
    CKPT_RETURN_IF_ERROR(ReadBox(below(), tensor, box, bytes, kPartElements, copy));
    return bytes;
  }

  Result<Bytes> Decode(const CodedTensor& tensor, const Box& values, std::size_t copy) const {
    const Box grid = GridOf(values, tensor);
    Box stored = values;
    if (tensor.coding == Coding::kMxfp4) {
      stored = grid;
      stored.offsets.push_back(0);
      stored.sizes.push_back(kMxfp4BlockBytes);
    }
    CKPT_ASSIGN_OR_RETURN(const Bytes codes, ReadStored(*tensor.codes, stored, copy));
    CKPT_ASSIGN_OR_RETURN(Bytes scales, ReadStored(*tensor.scales, grid, copy));
    Bytes decoded(NumBytes(values.sizes, DType::kBfloat16));
    if (tensor.coding == Coding::kMxfp4) {
      DecodeMxfp4(codes, scales, decoded);
    } else {
      if (tensor.scales->dtype != DType::kFloat32) {  // widened, which is exact
        Bytes widened(NumBytes(grid.sizes, DType::kFloat32));
        CastElements(tensor.scales->dtype, scales, DType::kFloat32, widened);
        scales = std::move(widened);
      }
      DecodeMatrices(tensor, values.sizes, codes, scales, decoded);
    }
    return decoded;
  }

  // Dims before the last two count matrices.
  static void DecodeMatrices(const CodedTensor& tensor, DimsView sizes, ByteSpan codes,
                             ByteSpan scales, MutableByteSpan out) {
    const DimsView block = DimsView(tensor.block).last(2);
    const BlockedMatrix matrix{.rows = sizes[sizes.size() - 2],
                               .columns = sizes[sizes.size() - 1],
                               .block_rows = block[0],
                               .block_columns = block[1]};
    const auto count = static_cast<std::size_t>(NumElements(sizes.first(sizes.size() - 2)));
    const std::size_t elements = codes.size() / count;
    const std::size_t scale_bytes = scales.size() / count;
    for (std::size_t m = 0; m < count; ++m) {
      DecodeFp8Blocks(matrix, codes.subspan(m * elements, elements),
                      scales.subspan(m * scale_bytes, scale_bytes),
                      out.subspan(2 * m * elements, 2 * elements));
    }
  }

  std::map<std::string, Decoded, std::less<>> tensors_;  // by the key of the codes
};

}  // namespace

Result<std::shared_ptr<const CheckpointSource>> MakeDecodedSource(
    std::shared_ptr<const CheckpointSource> source, const std::vector<CodedTensor>& tensors) {
  auto decoded = std::make_shared<DecodedSource>(std::move(source));
  CKPT_RETURN_IF_ERROR(decoded->Build(tensors));
  return std::shared_ptr<const CheckpointSource>(std::move(decoded));
}

}  // namespace ckpt::internal
