// What a tensor in a rank's file is called in the whole model.
#ifndef CKPT_FORMATS_MP_RANK_INTERNAL_GLOBAL_NAME_H_
#define CKPT_FORMATS_MP_RANK_INTERNAL_GLOBAL_NAME_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/result.h"

namespace ckpt::mp_rank {

// Names in the whole model.
inline constexpr std::string_view kHeadName = "output_layer.weight";
inline constexpr std::string_view kEmbeddingName = "embedding.word_embeddings.weight";

// How the names of FP8 scaling states of Transformer Engine end, which every rank has of its own.
inline constexpr std::string_view kExtraStateEnding = "_extra_state";

// A key of a file: "model.decoder.layers.3.mlp.router.weight", or "model1.…", which is the second
// part of the model that a stage of an interleaved pipeline has.
struct LocalName {
  std::int64_t part = 0;
  std::string_view name;  // behind "model."
};

// Nothing: the key is not of the model.
[[nodiscard]] std::optional<LocalName> ParseLocalName(std::string_view key);

// Stages number their layers from 0. In the model, the first part of every stage comes before the
// second part of any.
class LayerOffsets {
 public:
  // A tensor of a stage. Errors: kBadMetadata (an absurd number of a layer).
  Status Note(std::int64_t stage, const LocalName& local);
  // Counts the layers of all stages. Call it once, after the last Note; returns their sum.
  std::int64_t Finish();

  // The name with the layer's number in the model. REQUIRES: Note was called with the same.
  [[nodiscard]] std::string GlobalName(std::int64_t stage, const LocalName& local) const;

 private:
  // (part, stage) → layers, and after Finish the number of the first one.
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> layers_;
};

// The name of an expert's tensor with `first_expert` added to the expert's number; other names
// stay. Errors: kBadMetadata (an absurd number).
Result<std::string> WithExpertNumber(std::string name, std::int64_t first_expert);
// Whether the name is one of an expert's tensor, or of several experts'.
[[nodiscard]] bool IsOfExpert(std::string_view name);
// Whether the name has the expert's number, as WithExpertNumber knows it.
[[nodiscard]] bool NumbersExpert(std::string_view name);

}  // namespace ckpt::mp_rank

#endif  // CKPT_FORMATS_MP_RANK_INTERNAL_GLOBAL_NAME_H_
