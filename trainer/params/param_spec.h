// ParamSpec: one trainable tensor of the model, as every mesh sees it.
#ifndef CKPT_TRAINER_PARAMS_PARAM_SPEC_H_
#define CKPT_TRAINER_PARAMS_PARAM_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor/shape.h"

namespace ckpt::trainer {

// Which ranks share a parameter. Declared, never guessed from a name.
enum class ParamClass : std::uint8_t {
  kDense,   // every rank of the data-parallel group
  kExpert,  // the ranks that hold the same experts
};

struct ParamInit {
  double constant = 0;
  double std = 0;  // normally distributed around `constant`; 0: the constant
};

struct ParamSpec {
  // Global, the same on every mesh: `decoder.layers.3.mlp.experts.linear_fc1.weight5`.
  std::string name;
  Dims shape;  // [rows, …]
  ParamClass param_class = ParamClass::kDense;
  ParamInit init = {};
  bool trainable = true;
  // Parameters that follow one another in a unit under the same name here, of one shape, are a
  // stack: wherever the unit is whole, those of them that are trained, and those that are not, lie
  // behind one another without gaps, as one tensor [n, rows, …]. Empty: by itself.
  std::string stack = {};
};

// What is gathered, used and released together: a layer, or the root (embedding, final norm, head).
struct UnitSpec {
  std::string name;
  std::vector<ParamSpec> params;
};

// State that no gradient trains and that every rank holds alike: the router's expert bias.
struct ReplicatedBufferSpec {
  std::string name;
  Dims shape;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_PARAM_SPEC_H_
