// OpWork: what one call of an operation asks of a device, whatever computes it.
#ifndef CKPT_TRAINER_OPS_OP_WORK_H_
#define CKPT_TRAINER_OPS_OP_WORK_H_

#include <array>
#include <cstdint>

namespace ckpt::trainer {

// Where only the device knows how many rows are in use, all that there is room for count; and where
// examples share sequences, attention counts as if a sequence were one example.
struct OpWork {
  const char* name = "";  // of the method; of Gemm, with what the product is for
  // m, n, k of [m, n] = [m, k] · [k, n]; 0 for what is not such a product. Of products by
  // expert, those of an expert with the mean number of rows.
  std::array<std::int64_t, 3> product{};
  std::int64_t num_products = 0;
  // That it has to read and write: every operand once, or twice where it is added to or updated.
  double bytes = 0;
  // Multiplications and additions of matrix products and of attention, which computes its scores
  // again in the backward. Those of other operations are not counted: memory bounds them.
  double flops = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_OP_WORK_H_
