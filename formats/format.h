// What a checkpoint format is: one value that says how it is recognised, read and written.
//
// Every format has a folder of its own with one constant of this type; formats/registry lists them.
// No other code asks which format it has: it asks for a property, or calls a function.
#ifndef CKPT_FORMATS_FORMAT_H_
#define CKPT_FORMATS_FORMAT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/index.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"
#include "core/io/storage.h"
#include "core/layout/value.h"
#include "core/manifest/manifest.h"
#include "core/manifest/run_root.h"
#include "formats/place.h"
#include "formats/weights_request.h"

namespace ckpt {

struct RunFormat;  // core/training/run_format.h

// The folder of a checkpoint in which the side files of a published model travel, where a format
// keeps them apart.
inline constexpr std::string_view kAssetsDirectory = "hf_assets";

// Keys of the mappings in which a format can say where an entry stands.
enum class NestedKeys : std::uint8_t { kNone, kTexts, kTextsAndNumbers };

// What people can choose about the form of a checkpoint. Formats may share one.
struct FormatOption {
  std::string_view name;                     // "torch-dist-generation"
  std::string_view purpose;                  // what it is for
  std::span<const std::string_view> values;  // the first is taken if nothing is asked for
  std::string_view of_conversions = {};  // one of them that a run in training cannot be stored in
  // About the entries of a run's optimizer: weights alone do not have them, and a run does in any
  // container.
  bool is_of_run = false;
};

// Constants with static lifetime: a pointer to one is the format. A null function is something that
// the format cannot do, or that is not implemented; OpenAs and PlanWeights say so.
struct Format {
  std::string_view name;
  // What its tensors are called when nothing else is asked for: a naming of the layout tables.
  // Empty: it does not say.
  std::string_view usual_naming = {};
  // The format whose files it uses in a way of its own; null: none.
  const Format* built_on = nullptr;
  // No format of its own, but a way to call what is in a checkpoint of `built_on`: people know such
  // a checkpoint as one of that, and ask for it by that name and the naming.
  bool is_naming = false;
  // Of a naming: the same in another container, which Formats() does not list, as readers tell both
  // by the same keys. Null: none.
  const Format* elsewhere = nullptr;
  // Its loaders ask for a tied tensor under each of its names, so that copies are written.
  bool writes_copies = false;
  // The directory around its checkpoints, if a convention says what is in it.
  const RunRoot* root = nullptr;
  // Where config.json, the tokenizer and other side files lie in a checkpoint. Empty: among its own
  // files.
  std::string_view assets_directory = kAssetsDirectory;
  // Where a checkpoint has the files of its own tokenizer, if it has them. They count more than
  // those of a published model. Empty: nowhere.
  std::string_view tokenizer_directory = {};
  // Its readers know the model from config.json alone: a checkpoint needs one, and one that is true
  // of its weights.
  bool needs_config = false;
  // A side file that says which file holds which tensor. It is written again if tensors lie in
  // other files. Empty: there is none.
  std::string_view index_file = {};
  // Forms that different readers take.
  std::span<const FormatOption> options = {};
  // How the names of its files end, by which people know them. A checkpoint that is a directory
  // would be taken for one of them. Empty: they do not.
  std::string_view file_suffix = {};
  // A checkpoint is one file.
  bool is_one_file = false;
  // The name of that file where a checkpoint must be a directory, as a run's must. Empty: it cannot
  // be one.
  std::string_view file_in_directory = {};
  // It takes objects of any key, as text (WeightsRequest::carried_objects).
  bool holds_objects = false;
  // They lie apart from the tensors: whoever loads the weights does not meet them.
  bool keeps_objects_apart = false;
  // What it says of the places of tensors and objects in a nested object (WeightsRequest::paths).
  NestedKeys nested_keys = NestedKeys::kNone;
  // It keeps what stands beside the values of a mapping (AttributeName).
  bool keeps_attributes = false;
  // Keys may be bytes that are no text.
  bool keys_are_bytes = false;
  // Its readers take tensors in zstd frames (WeightsRequest::zstd_level).
  bool can_compress = false;
  // It can show the tensors of an existing checkpoint without a copy of them.
  bool can_link = false;
  // By what people know a directory or a file of it, for the message that nothing was recognised.
  // Empty: by nothing simple.
  std::string_view directory_signs = {};
  std::string_view file_signs = {};

  // Finds out, by names and first bytes alone, whether a place holds such a checkpoint, and returns
  // what to open: the place itself or a file in it. Null: only its keys show it.
  // Errors: kIncomplete (an interrupted save), kUnsupported (a related layout that is not read),
  // kBadMetadata, kIo.
  Result<std::optional<Path>> (*recognise)(const Place& place) = nullptr;
  // Called for every format before `recognise`. Returns an error if the place looks like a
  // checkpoint of some format, but is not one. Null: never.
  Status (*refuse)(const Place& place) = nullptr;
  // Called if no format recognises the place. Returns an error that says what the place is, if this
  // format knows; else OK. Null: it never knows.
  Status (*explain)(const Place& place) = nullptr;
  // Whether the tensors and objects of a checkpoint in the format `built_on` are named as in this
  // one.
  bool (*has_keys_of)(const CheckpointIndex& index) = nullptr;
  // Errors: what the format's reader finds.
  Result<std::unique_ptr<CheckpointSource>> (*open)(Storage& storage, const Path& path) = nullptr;
  // Adds to a source of the format `built_on` what this one keeps beside it; `open` adds it itself.
  // `path` is what was opened. Null: nothing.
  Result<std::unique_ptr<CheckpointSource>> (*complete)(std::unique_ptr<CheckpointSource> source,
                                                        Storage& storage,
                                                        const Path& path) = nullptr;
  // Every file of a new checkpoint with a model's weights. A pure function. Errors: kUsage
  // (something asked for that the format does not have), and those of the format's planner.
  Result<PlannedCheckpoint> (*plan_weights)(WeightsRequest request) = nullptr;
  // Of a format that holds objects: whether it can hold this one, which the object itself may
  // change where its text says too little (CarriedObject::pickled). Errors: kUnsupported, saying
  // why not. Null: any.
  Status (*check_object)(const CarriedObject& object) = nullptr;
  // Of a format that stores an object's text: whether that says all of the object. If not, the text
  // is stored all the same, and the object counts as left out. Errors: kUnsupported, saying what it
  // lacks. Null: it stores more than texts.
  Status (*check_text)(const CarriedObject& object) = nullptr;
  // Proves the files of `plan`, the first of which lies at `path`, by the software that defines the
  // format: it must find what was planned. Called before a checkpoint is published; reads no
  // elements. Null: there is none, or this build does not use it.
  Status (*prove)(Storage& storage, const Path& path, const WritePlan& plan) = nullptr;
  // How a whole training run is stored. Null: in no form of its own (FormOfRun).
  const RunFormat* run = nullptr;
  // Megatron's arguments, by their names; nothing if a checkpoint has none. Null: the format has no
  // place for them.
  Result<layout::Configuration> (*read_args)(const CheckpointSource& source) = nullptr;
  // The manifest that a source of `open` holds itself; null if it holds none. Null: none does.
  Result<std::shared_ptr<const Manifest>> (*read_manifest)(const CheckpointSource& source) =
      nullptr;
  // How the files of a source that `open` returned divide its tensors, so that they can be written
  // again as they are. Null: the format's files have no names of their own to keep.
  std::vector<ManifestShard> (*describe_shards)(const CheckpointSource& source) = nullptr;
  // The objects that a checkpoint has whose files are written again as they are: keys, and texts,
  // which are their values. Null where `describe_shards` is.
  std::vector<SideText> (*texts_of_shards)(std::span<const ManifestShard> shards) = nullptr;

  // Of a format whose checkpoint is one file: whether `file`, which lies beside `target`, is one of
  // those that `plan_weights` writes there. Errors: kAlreadyExists (it has the name of one, and is
  // something else). Null: nothing is written beside a target.
  Result<bool> (*is_part)(Storage& storage, const Path& target, const Path& file) = nullptr;

  // What people call the format of a checkpoint.
  [[nodiscard]] std::string_view container() const { return is_naming ? built_on->name : name; }
  [[nodiscard]] bool keeps_shards() const { return describe_shards != nullptr; }
};

// Tensors that lie in memory, as if they were a checkpoint.
inline constexpr Format kInMemory = {.name = "memory"};

// `format.open`. Errors: kUnsupported (this build does not read the format), and those of `open`.
Result<std::unique_ptr<CheckpointSource>> OpenAs(const Format& format, Storage& storage,
                                                 const Path& path);

// `target` is what the message calls what has the options. Errors: kUsage (it has no such option,
// or the option no such value).
Status CheckForms(std::string_view target, std::span<const FormatOption> options,
                  const ChosenForms& forms);

// Adds files of new content to `plan`, where the format keeps those of a published model.
// `directory` is the checkpoint's own there. REQUIRES: `assets_directory` is not empty.
void AddSideTexts(const Format& format, std::string_view directory, std::span<const SideText> texts,
                  WritePlan& plan);

// `format.plan_weights`. Errors: kUnsupported (this build does not write the format), kUsage (a
// form that the format does not have), and those of `plan_weights`.
Result<PlannedCheckpoint> PlanWeights(const Format& format, WeightsRequest request);

}  // namespace ckpt

#endif  // CKPT_FORMATS_FORMAT_H_
