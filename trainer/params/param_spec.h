// ParamSpec: one parameter of the model, the same on every mesh.
#ifndef CKPT_TRAINER_PARAMS_PARAM_SPEC_H_
#define CKPT_TRAINER_PARAMS_PARAM_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor/shape.h"

namespace ckpt::trainer {

// Which ranks hold a parameter. Always declared; a name does not decide it.
enum class ParamClass : std::uint8_t {
  kDense,   // every rank of the data-parallel group
  kExpert,  // the ranks that hold the same experts
};

struct ParamInit {
  double constant = 0;
  double std = 0;  // normally distributed around `constant`; 0: the constant
};

struct ParamSpec {
  // The global name: `decoder.layers.3.mlp.experts.linear_fc1.weight5`.
  std::string name;
  Dims shape;  // [rows, …]
  ParamClass param_class = ParamClass::kDense;
  ParamInit init = {};
  bool trainable = true;
  // Consecutive parameters of a unit with the same `stack` and the same shape form a stack.
  // Wherever the unit is whole, the trained ones of a stack are contiguous, as one tensor [n, rows,
  // …], and so are the frozen ones. Empty: not in a stack.
  std::string stack = {};
};

// Parameters that are gathered, used and released together: a layer, or an end of the model.
struct UnitSpec {
  std::string name;
  std::vector<ParamSpec> params;
  // Whole, it has a place of its own and not a slot: the embedding and the head, which are larger
  // than layers and are used once in a pass.
  bool is_end = false;
};

// State without a gradient, the same on every rank: the router's expert bias.
struct ReplicatedBufferSpec {
  std::string name;
  Dims shape;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_PARAM_SPEC_H_
