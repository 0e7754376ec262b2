// Any bytes as weights, their chunks, and the buffers of a distributed optimizer: what is accepted
// is read, and every state has the shape of its weight.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/endian.h"
#include "core/checkpoint/memory_source.h"
#include "core/io/memory_storage.h"
#include "formats/torch_dist/internal/unpacked_buffers.h"
#include "tests/fuzz/read_everything.h"

namespace ckpt {
namespace {

constexpr std::array<std::string_view, 8> kWeights = {
    "embedding.word_embeddings.weight",
    "decoder.layers.self_attention.linear_qkv.layer_norm_weight",
    "decoder.layers.self_attention.linear_proj.weight",
    "decoder.layers.3.self_attention.q_layernorm.weight",
    "decoder.layers.mlp.linear_fc1.weight",
    "decoder.layers.mlp.experts.experts.linear_fc1.weight",
    "decoder.layers.mixer.in_proj.weight",
    "output_layer.weight"};
constexpr std::array<std::string_view, 8> kBuckets = {
    "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.float32, a).bucket_idx_0.param",
    "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.float32, a).bucket_idx_0.exp_avg",
    "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.float32, a).bucket_idx_1.param",
    "optimizer.distributed.dp_group_idx_1.gbuf_idx_0.dtype_(torch.float32, a).bucket_idx_0.param",
    "optimizer.distributed.dp_group_idx_0.gbuf_idx_7.dtype_(torch.float32, a).bucket_idx_0.param",
    "chained_1.optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.float32, a)."
    "bucket_idx_0.param",
    "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.uint8, a).bucket_idx_0.param",
    "optimizer.distributed.dp_group_idx_.gbuf_idx_0.dtype_(.bucket_idx_0.param"};

// Takes numbers from the input; zeros behind its end.
class Numbers {
 public:
  explicit Numbers(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  [[nodiscard]] bool is_empty() const { return bytes_.empty(); }
  // Below `limit`.
  std::int64_t Next(std::int64_t limit) {
    if (bytes_.empty()) return 0;
    const std::int64_t number = bytes_.front() % limit;
    bytes_ = bytes_.subspan(1);
    return number;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

// Tensors of float32 in one file, cut into chunks.
class StatedIndex {
 public:
  StatedIndex() : file_(builder_.AddFile("f")), raw_(builder_.AddEncoding("raw")) {}

  // Equal elements, cut along `dim` into `parts`, if these are whole.
  void AddWeight(std::string_view key, const Dims& shape, std::size_t dim, std::int64_t parts,
                 float value) {
    Begin(key, shape);
    if (shape[dim] % parts != 0) parts = 1;
    const std::int64_t stacked = key.find("layers.") != std::string_view::npos &&
                                         key.find("layers.3") == std::string_view::npos
                                     ? shape[0]
                                     : 1;
    for (std::int64_t layer = 0; layer < stacked; ++layer) {
      for (std::int64_t part = 0; part < parts; ++part) {
        Box box = WholeBox(shape);
        if (stacked > 1) box.sizes[0] = 1;
        if (stacked > 1) box.offsets[0] = layer;
        if (stacked == 1 || dim != 0) {
          box.sizes[dim] = shape[dim] / parts;
          box.offsets[dim] = part * box.sizes[dim];
        }
        AddChunk(box, std::vector<float>(static_cast<std::size_t>(NumElements(box.sizes)), value));
        if (stacked > 1 && dim == 0) break;
      }
    }
  }
  // Runs of equal elements, with a chunk each.
  void AddBucket(std::string_view key, const std::vector<std::pair<float, std::int64_t>>& runs) {
    std::int64_t elems = 0;
    for (const auto& [value, count] : runs) elems += count;
    Begin(key, {elems});
    std::int64_t first = 0;
    for (const auto& [value, count] : runs) {
      AddChunk({.offsets = {first}, .sizes = {count}},
               std::vector<float>(static_cast<std::size_t>(count), value));
      first += count;
    }
  }
  // A key counts once.
  [[nodiscard]] bool Has(std::string_view key) const { return keys_.contains(std::string(key)); }

  std::shared_ptr<const CheckpointSource> Finish() {
    const auto storage = MakeMemoryStorage();
    CKPT_CHECK(WriteSmallFile(*storage, "/f", bytes_).ok());
    return MakePartialSource(builder_.Build().value(), {storage->Open("/f").value()}).value();
  }

 private:
  void Begin(std::string_view key, const Dims& shape) {
    keys_.emplace(key);
    builder_.AddTensor(key, DType::kFloat32, shape);
  }
  void AddChunk(const Box& box, const std::vector<float>& values) {
    const std::size_t offset = bytes_.size();
    bytes_.resize(offset + values.size() * sizeof(float));
    for (std::size_t i = 0; i < values.size(); ++i) {
      StoreLe(values[i], bytes_.data() + offset + i * sizeof(float));
    }
    builder_.AddChunk(box, file_, raw_, offset, values.size() * sizeof(float));
  }

  IndexBuilder builder_;
  FileId file_;
  EncodingId raw_;
  Bytes bytes_;
  std::set<std::string> keys_;
};

// A weight whose state the source has under this key; null: it is another tensor.
const GlobalTensor* WeightOf(const CheckpointIndex& index, std::string_view key) {
  for (const std::string_view prefix : {"optimizer.state.param.", "optimizer.state.exp_avg."}) {
    if (key.starts_with(prefix)) return index.FindTensor(key.substr(prefix.size()));
  }
  return nullptr;
}

void Run(Numbers numbers) {
  StatedIndex stated;
  for (int tensor = 0; tensor < 24 && !numbers.is_empty(); ++tensor) {
    const bool is_weight = numbers.Next(2) == 0;
    const auto number = static_cast<std::size_t>(numbers.Next(8));
    const std::string_view key = is_weight ? kWeights[number] : kBuckets[number];
    if (is_weight) {
      Dims shape = {1 + numbers.Next(3)};
      for (std::int64_t d = numbers.Next(3); d >= 0; --d) shape.push_back(1 + numbers.Next(64));
      const auto dim = static_cast<std::size_t>(numbers.Next(4)) % shape.size();
      const std::int64_t parts = 1 + numbers.Next(4);
      const auto value = static_cast<float>(numbers.Next(3));
      if (!stated.Has(key) && NumElements(shape) < 4096) {
        stated.AddWeight(key, shape, dim, parts, value);
      }
    } else {
      std::vector<std::pair<float, std::int64_t>> runs;
      for (std::int64_t run = numbers.Next(12); run >= 0; --run) {
        const auto value = static_cast<float>(numbers.Next(3));
        runs.emplace_back(value, 1 + numbers.Next(255));
      }
      if (!stated.Has(key)) stated.AddBucket(key, runs);
    }
  }
  const auto view = torch_dist::UnpackBuffers(stated.Finish());
  if (!view.ok()) return;
  for (const GlobalTensor& tensor : (*view)->index().tensors()) {
    const GlobalTensor* const weight = WeightOf((*view)->index(), tensor.key);
    if (weight != nullptr) CKPT_CHECK(weight->shape == tensor.shape);
  }
  testing::ReadEverything(**view);
}

}  // namespace
}  // namespace ckpt

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ckpt::Run(ckpt::Numbers(std::span(data, size)));
  return 0;
}
