// Which objects of a pickle are modules of torch.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_MODULE_STATES_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_MODULE_STATES_H_

#include <cstdint>
#include <vector>

#include "formats/pickle/graph.h"

namespace ckpt::torch_save {

class ModuleStates {
 public:
  // `graph` must outlive this, unchanged.
  explicit ModuleStates(const pickle::Graph& graph)
      : graph_(graph), known_(graph.size(), Known::kNot) {}

  // The state of a pickled nn.Module, a dict; kNoNode for anything else. What was found out of a
  // state is kept, because objects may share a large one.
  [[nodiscard]] pickle::NodeId Of(pickle::NodeId node);

 private:
  enum class Known : std::uint8_t { kNot, kYes, kNo };

  const pickle::Graph& graph_;
  std::vector<Known> known_;  // by state
};

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_MODULE_STATES_H_
