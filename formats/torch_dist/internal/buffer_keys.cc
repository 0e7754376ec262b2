#include "formats/torch_dist/internal/buffer_keys.h"

#include <cstddef>

#include <fmt/format.h>

#include "core/base/text_number.h"
#include "formats/torch_dist/internal/run_keys.h"

namespace ckpt::torch_dist {
namespace {

// Takes "gbuf_idx_" and a number from the front, up to a dot.
bool TakeNumbered(std::string_view name, std::string_view& text, std::int64_t& number) {
  const auto taken = TakePrefix(name, text) ? TakeNumber<std::int64_t>(text) : std::nullopt;
  number = taken.value_or(-1);
  return number >= 0 && TakePrefix(".", text);
}

// Adds the tensor if its key is that of a bucket.
void AddBucket(const GlobalTensor& tensor, Buffers& buffers) {
  std::string_view text = WithoutNumber(tensor.key);
  BufferId id;
  id.optimizer = tensor.key.substr(0, tensor.key.size() - text.size());
  const bool begins = TakePrefix(kOptimizerBuffers, text) &&
                      TakeNumbered("dp_group_idx_", text, id.group) &&
                      TakeNumbered("gbuf_idx_", text, id.buffer) && TakePrefix("dtype_(", text);
  const std::size_t close = text.find(").");
  if (!begins || close == std::string_view::npos) return;
  id.dtypes = text.substr(0, close);
  text.remove_prefix(close + 2);
  std::int64_t bucket = 0;
  if (!TakeNumbered("bucket_idx_", text, bucket)) return;
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
    return TakePrefix("torch.", text) ? ParseDType(text) : std::nullopt;
  };
  const std::optional<DType> parameters = parse(dtypes.substr(0, comma));
  const std::optional<DType> gradients = parse(dtypes.substr(comma + kBetween.size()));
  if (!parameters || !gradients) return std::nullopt;
  return BufferDTypes{.parameters = *parameters, .gradients = *gradients};
}

}  // namespace ckpt::torch_dist
