#include "formats/torch_dist/internal/buffer_keys.h"

#include <charconv>
#include <cstddef>
#include <system_error>

#include <fmt/format.h>

#include "formats/torch_dist/internal/run_keys.h"

namespace ckpt::torch_dist {
namespace {

// Takes "gbuf_idx_" and a number from the front, up to a dot.
bool TakeNumber(std::string_view name, std::string_view& text, std::int64_t& number) {
  if (!text.starts_with(name)) return false;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + name.size(), end, number);
  if (error != std::errc() || rest == end || *rest != '.' || number < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(rest + 1 - text.data()));
  return true;
}

// Adds the tensor if its key is that of a bucket.
void AddBucket(const GlobalTensor& tensor, Buffers& buffers) {
  constexpr std::string_view kDtypes = "dtype_(";
  std::string_view text = WithoutNumber(tensor.key);
  BufferId id;
  id.optimizer = tensor.key.substr(0, tensor.key.size() - text.size());
  if (!text.starts_with(kOptimizerBuffers)) return;
  text.remove_prefix(kOptimizerBuffers.size());
  std::int64_t bucket = 0;
  const bool begins = TakeNumber("dp_group_idx_", text, id.group) &&
                      TakeNumber("gbuf_idx_", text, id.buffer) && text.starts_with(kDtypes);
  const std::size_t close = text.find(").");
  if (!begins || close == std::string_view::npos) return;
  id.dtypes = text.substr(kDtypes.size(), close - kDtypes.size());
  text.remove_prefix(close + 2);
  if (!TakeNumber("bucket_idx_", text, bucket)) return;
  buffers[id][bucket][std::string(text)] = &tensor;
}

}  // namespace

Buffers FindBuffers(const CheckpointIndex& index) {
  Buffers buffers;
  for (const GlobalTensor& tensor : index.tensors()) AddBucket(tensor, buffers);
  return buffers;
}

std::string GroupKey(const BufferId& id) {
  return fmt::format("{}{}dp_group_idx_{}.", id.optimizer, kOptimizerBuffers, id.group);
}

std::string BucketKey(const BufferId& id, std::int64_t bucket) {
  return fmt::format("{}gbuf_idx_{}.dtype_({}).bucket_idx_{}.", GroupKey(id), id.buffer, id.dtypes,
                     bucket);
}

std::optional<BufferDTypes> ParseBufferDTypes(std::string_view dtypes) {
  constexpr std::string_view kBetween = ", ";
  const std::size_t comma = dtypes.find(kBetween);
  if (comma == std::string_view::npos) return std::nullopt;
  const auto parse = [](std::string_view text) -> std::optional<DType> {
    constexpr std::string_view kTorch = "torch.";
    if (!text.starts_with(kTorch)) return std::nullopt;
    return ParseDType(text.substr(kTorch.size()));
  };
  const std::optional<DType> parameters = parse(dtypes.substr(0, comma));
  const std::optional<DType> gradients = parse(dtypes.substr(comma + kBetween.size()));
  if (!parameters || !gradients) return std::nullopt;
  return BufferDTypes{.parameters = *parameters, .gradients = *gradients};
}

}  // namespace ckpt::torch_dist
