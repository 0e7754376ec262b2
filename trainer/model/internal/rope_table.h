// RopeTable: cosines and sines of rotary positions.
#ifndef CKPT_TRAINER_MODEL_INTERNAL_ROPE_TABLE_H_
#define CKPT_TRAINER_MODEL_INTERNAL_ROPE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "trainer/device/device.h"
#include "trainer/model/model_config.h"

namespace ckpt::trainer {

// The angle in radians per position of each of the dim/2 rotated pairs, slowed down as
// `rope.scaling` says. Formulas and precision are those of Transformers (modeling_rope_utils.py).
// Real is float or double.
template <typename Real>
std::vector<Real> RopeFrequencies(const RopeConfig& rope, std::int64_t dim);

// Elements of a head that are rotated; 0 if the model's positions are not rotary.
[[nodiscard]] std::int64_t RotatedElements(const ModelConfig& config);

// The table of one model. It grows to the longest sequence seen.
//
// Thread-safety: the rank's thread.
class RopeTable {
 public:
  // `dim`: rotated elements of a head, an even number.
  RopeTable(const RopeConfig& rope, std::int64_t dim) : rope_(rope), dim_(dim) {}

  // Makes `cosine` and `sine` hold `seq` positions of `dtype` (float32 or float64). Waits for the
  // queue if the table grows.
  // Errors: kSystem, those of the queue.
  Status Prepare(Device& device, Queue& queue, DType dtype, std::int64_t seq);

  // [seq, dim/2], as prepared last.
  [[nodiscard]] const Tensor& cosine() const { return cosine_; }
  [[nodiscard]] const Tensor& sine() const { return sine_; }
  [[nodiscard]] std::int64_t dim() const { return dim_; }
  [[nodiscard]] bool interleaved() const { return rope_.interleaved; }

 private:
  template <typename Real>
  [[nodiscard]] std::vector<std::byte> Compute(std::int64_t num_positions) const;

  const RopeConfig rope_;
  const std::int64_t dim_;
  std::int64_t num_positions_ = 0;
  Buffer buffer_;  // all cosines, then all sines
  Tensor cosine_;
  Tensor sine_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_INTERNAL_ROPE_TABLE_H_
