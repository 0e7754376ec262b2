// The persistent ids of torch.save: how a pickle refers to a storage.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_PERSISTENT_STORAGE_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_PERSISTENT_STORAGE_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/tensor/dtype.h"
#include "formats/pickle/graph.h"

namespace ckpt::torch_save {

// ('storage', class, key, location, numel[, (view key, offset, size)]). Views into the graph.
struct PersistentStorage {
  std::string_view key;
  bool is_untyped = false;
  std::optional<DType> dtype;       // of a typed class that is not a quantised one
  std::uint64_t num_elems = 0;      // of the whole storage
  std::uint64_t element_bytes = 0;  // 1 of an untyped storage; 0 of an unknown class
  // In elements: the part of the storage that this reference means. Legacy streams only.
  struct View {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };
  std::optional<View> view;
};

// Nothing if the persistent id has another form. REQUIRES: kPersistent.
[[nodiscard]] std::optional<PersistentStorage> ParsePersistentStorage(const pickle::Graph& graph,
                                                                      pickle::NodeId persistent);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_PERSISTENT_STORAGE_H_
