// ModelSource: a checkpoint understood as a model: its family, its configuration, and where its
// weights lie.
#ifndef CKPT_CONVERTERS_VERBS_MODEL_SOURCE_H_
#define CKPT_CONVERTERS_VERBS_MODEL_SOURCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "converters/quantised/decoded_weights.h"
#include "converters/verbs/side_files.h"
#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/layout/layout_table.h"
#include "core/layout/match.h"
#include "core/layout/resolve.h"
#include "core/layout/value.h"
#include "core/manifest/manifest.h"
#include "core/plan/conversion_plan.h"
#include "formats/registry/registry.h"

namespace ckpt {

struct OpenModelOptions {
  OpenOptions open;
  Path assets;  // directory with config.json and tokenizer; empty: beside or inside the checkpoint
  std::string naming;                    // of the keys; empty: the one that fits best
  std::string model_type;                // in place of the configuration's own
  layout::Configuration config;          // where neither assets nor the checkpoint say one
  Path mapping;                          // a layout table to use instead of the built-in ones
  bool with_vocabulary_padding = false;  // see CountVocabularyPadding
  bool allow_missing =
      false;  // tensors that the family needs and the checkpoint lacks are left out
  // Globs over source keys, each of which must match one.
  std::vector<std::string> only;  // take nothing else
  std::vector<std::string> drop;  // leave these out
  // Pattern of source keys → that of the keys they are taken for (core/base/wildcard.h). A pattern
  // of one key comes before those with a `*`.
  std::map<std::string, std::string> rename;
  // Take these and nothing else, each for the tensor of the name given; empty: as the globs say.
  std::map<std::string, std::string> take_as;
  // For hints: naming of a source → the verb that converts it.
  std::map<std::string, std::string> verbs;
};

// A tensor of the source under the key that it is taken for.
struct StoredTensor {
  std::string key;
  std::uint32_t position = 0;  // in the checkpoint's index
};

// How people say which family a model is of, where only the arguments of a run describe it.
inline constexpr std::string_view kSayTheFamily =
    "if such a model is published, ckpt-convert and ckpt-inspect digest, diff and plan take its "
    "config.json from --hf-assets DIR; ckpt-convert --model-type NAME says the family alone";

struct ModelSource {
  std::shared_ptr<const OpenedCheckpoint> checkpoint;
  // Its weights as the model has them, where they are stored quantised.
  DecodedWeights decoded;
  Path assets;  // empty if there are none
  // Without `quantization_config`, if the weights were decoded.
  layout::Configuration config;
  // `config` is made of a run's arguments, which name no family: published names may be others.
  bool is_family_guessed = false;
  // Keys of config.json that the model's class ignores, if `family` is a table of the user's, which
  // may read them.
  layout::Configuration ignored;
  // Null if the tensors are taken as they are stored, whatever model they are: `stored` lists them.
  std::shared_ptr<const layout::LayoutTable> family;
  std::vector<StoredTensor> stored;
  // Where the family's tensors are: `positions` count in the checkpoint's index.
  layout::SourceMatch match;
  // Tensors and objects that the model's weights do not need.
  std::vector<LeftOutEntry> left_out;
  std::shared_ptr<const Manifest> manifest;  // our manifest; null if the checkpoint has none
  // What a reader should know of: findings of ValidateIndex, weights that were decoded.
  std::vector<Problem> warnings;

  [[nodiscard]] const CheckpointSource& source() const {
    return decoded.source ? *decoded.source : *checkpoint->source;
  }
  // What `family` reads.
  [[nodiscard]] layout::Configuration layout_config() const;
};

// Opens `path`, finds its configuration and family, and matches every tensor's name and shape.
//
// The configuration is `config.json` in `assets`, in the checkpoint's own directory or in its
// `hf_assets`; without one it is derived from the `args` that Megatron stores, and without them it
// is `options.config`. Weights that it calls quantised are decoded.
//
// Errors: those of OpenCheckpoint; every error that ValidateIndex finds, but for those about
// entries that the globs leave out, which become warnings; those of DecodeWeights; kNotFound (no
// configuration), kUnsupported (no table for the family), kUnmapped, kMissing, kShapeMismatch; all
// at once. kUsage (a glob matches nothing, the globs leave nothing, --rename names no key).
Result<ModelSource> OpenModel(Storage& storage, const Path& path, const OpenModelOptions& options);

// The same for a checkpoint that is open already; `options.open` is not looked at.
Result<ModelSource> UnderstandModel(Storage& storage,
                                    std::shared_ptr<const OpenedCheckpoint> checkpoint,
                                    const OpenModelOptions& options);

// The checkpoint with the weights decoded that its own configuration calls quantised. Itself if
// there are none, if no configuration says so, or if they are not what it says.
std::shared_ptr<const OpenedCheckpoint> SeeDecoded(
    Storage& storage, std::shared_ptr<const OpenedCheckpoint> checkpoint);

// Bytes of an object, with the tensors in it. One that lies in a larger pickle has none of its own:
// then those of a pickle of it alone count, or else of its text.
[[nodiscard]] std::uint64_t StoredBytes(const CheckpointSource& source, const ObjectEntry& object);

// Why an entry that --only and --drop leave out is left out.
inline constexpr std::string_view kLeftOutOnRequest = "left out on request";

// The key of an entry of the source in a target that takes entries as they are stored; nothing if
// the options leave it out.
[[nodiscard]] std::optional<std::string> KeyInTarget(const OpenModelOptions& options,
                                                     const std::string& key);

// The tensors as they are stored, under their own keys: `family` is null. Only the choice of
// tensors is looked at. Errors: those of OpenModel about the checkpoint and the patterns.
Result<ModelSource> TakeAsStored(Storage& storage,
                                 std::shared_ptr<const OpenedCheckpoint> checkpoint,
                                 const OpenModelOptions& options);

// The model whose configuration is known. The checkpoint may be in memory, and its index is not
// validated here: only names and shapes are matched. Of `options`, those that decide the naming and
// the choice of tensors are used.
//
// Errors: kUnsupported (no table for the family), kUnmapped, kMissing, kShapeMismatch; all at once.
Result<ModelSource> MatchModel(std::shared_ptr<const OpenedCheckpoint> checkpoint,
                               layout::Configuration config, const OpenModelOptions& options);

// Adds what the arguments of a run say of the form of its names, under the names of choices
// (`transformer_impl`, `layer_keys`).
void DescribeForm(const layout::Configuration& args, layout::Configuration& config);

// Makes rows that pad the vocabulary part of it: of a training run they are state like all others.
void CountVocabularyPadding(layout::Configuration& config);

// Says that the vocabulary has so many rows, if these are more than it has tokens.
void PadVocabulary(std::int64_t rows, layout::Configuration& config);

// What a model's tensors are made of under another naming.
struct ModelView {
  layout::ResolvedLayout layout;
  // Parallel, in the order of the layout; tensors whose sources are absent are left out.
  std::vector<TargetTensor> tensors;
  std::vector<TensorRecipe> recipes;
  std::vector<bool> derived;   // a copy of other tensors
  std::vector<bool> expected;  // a copy that readers want
};

// The tensors of TakeAsStored.
[[nodiscard]] ModelView ViewAsStored(const ModelSource& model);

// What becomes of a tensor whose parts are stored in different dtypes.
enum class MixedDtypes { kRefuse, kWiden };

// The model under the naming `naming` with `choices`.
// Errors: kUsage (no such naming or choice), kUnsupported, kDtypeMismatch (parts of one tensor
// differ, and `mixed` refuses it, or no dtype holds the values of all), kMissing (part of a tensor
// is absent).
Result<ModelView> ViewModel(const ModelSource& model, const std::string& naming,
                            const layout::Choices& choices,
                            MixedDtypes mixed = MixedDtypes::kRefuse);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_MODEL_SOURCE_H_
