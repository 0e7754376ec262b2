#include "core/exec/internal/produce_payload.h"

#include <algorithm>

#include "core/base/bytes.h"
#include "core/base/units.h"
#include "core/exec/internal/schedule.h"
#include "core/exec/progress.h"
#include "core/tensor/blocks.h"
#include "core/tensor/cast.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kMinWindowBytes = 64 * kKiB;

}  // namespace

Worker::Worker(const CheckpointSource& source, std::uint64_t budget_bytes)
    : window_bytes(std::clamp(budget_bytes / 8, kMinWindowBytes, kMaxWindowBytes)),
      reader(source, budget_bytes - std::min(kNumWindows * window_bytes, budget_bytes / 2)),
      buffers{.window_bytes = window_bytes} {}

Result<std::uint32_t> ProducePayload(const ConversionPlan& plan, const WriteItem& item,
                                     const ExecuteOptions& options, Worker& worker,
                                     ItemWriter& writer, TensorInProgress& tensor) {
  const TargetTensor& target = plan.write.tensors[item.tensor];
  const TensorRecipe& recipe = plan.recipes[item.tensor];
  const auto& late_bytes = plan.write.late_bytes;
  const bool needs_crc32 =
      plan.write.framing->needs_crc32() || (late_bytes && late_bytes->uses_crc32);
  const std::uint64_t source_element = ElementBytes(recipe.source_dtype);
  const std::uint64_t target_element = ElementBytes(target.dtype);
  const auto window_elements =
      static_cast<std::int64_t>(worker.window_bytes / std::max(source_element, target_element));
  std::uint32_t crc32 = 0;
  const auto write_window = [&](const Box& window) -> Status {
    if (options.stop.stop_requested()) {
      return Error(ErrorKind::kCancelled, "stopped on request");
    }
    const auto count = static_cast<std::uint64_t>(NumElements(window.sizes));
    CKPT_ASSIGN_OR_RETURN(const ByteSpan gathered,
                          worker.reader.ReadInOrder(recipe, item.box, window,
                                                    worker.gathered.First(count * source_element)));
    ByteSpan payload = gathered;
    if (recipe.source_dtype != target.dtype) {
      const MutableByteSpan cast = worker.cast.First(count * target_element);
      tensor.record.cast_overflows +=
          CastElements(recipe.source_dtype, gathered, target.dtype, cast);
      payload = cast;
    }
    tensor.hasher.Update(payload);
    if (needs_crc32) crc32 = Crc32(payload, crc32);
    CKPT_RETURN_IF_ERROR(writer.Write(payload));
    if (options.progress != nullptr) options.progress->OnDone(target.key, payload.size());
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(ForEachBlock(item.box, window_elements, write_window));
  return crc32;
}

}  // namespace ckpt
