// What a new checkpoint with a model's weights shall hold, and the plan that a format makes of it.
#ifndef CKPT_FORMATS_WEIGHTS_REQUEST_H_
#define CKPT_FORMATS_WEIGHTS_REQUEST_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/chosen_forms.h"
#include "core/checkpoint/empty_objects.h"
#include "core/checkpoint/entry_paths.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"
#include "core/layout/value.h"
#include "core/manifest/manifest.h"
#include "core/tensor/box.h"

namespace ckpt {

struct SideText {
  std::string name;
  std::string content;
};

// An object of the source as JSON (docs/formats/objects.md).
struct CarriedObject {
  std::string key;
  std::string type = {};  // Python's name of the outermost type
  std::string json = {};
  HeldNumbers numbers = {};  // as in RenderedObject
  // The object itself, where the text does not say all that the format needs.
  std::optional<PickledObject> pickled = {};
};

// Elements of a tensor that lie in an existing file, in C order, little endian.
struct LinkedBox {
  Box box;
  std::string file;  // absolute
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

// A format uses what it has a place for.
struct WeightsRequest {
  std::vector<TargetTensor> tensors;
  // Small ones whose elements are known already. Only of formats that hold objects of any key.
  std::vector<MemoryTensor> known_tensors = {};
  std::vector<EmptyObjects> objects = {};  // of the tensors' naming
  ChosenForms forms = {};                  // of the format's
  std::vector<WriteCopy> side_files;       // named relative to the repository they come from
  std::vector<SideText> side_texts;        // side files of new content
  // Files to write again as they once were (safetensors); empty: tensors are packed again.
  std::vector<ManifestShard> shards;
  std::uint64_t max_file_bytes = 0;    // 0: the format's default
  int files = 0;                       // data files; 0: by size
  std::optional<int> zstd_level = {};  // compress tensors; nothing: store them as they are
  // What the source's files are called.
  std::vector<std::string> original_files = {};
  // Indexes of the source's files, by name. Each is written again if it is still correct.
  std::vector<SideText> original_indexes = {};
  // Of a format whose checkpoint is one file: the target's own name, and those of files beside it
  // that a present target shows, which must stay as they are until that is replaced.
  std::string file_name = {};
  std::vector<std::string> names_in_use = {};
  // For formats that hold objects as text, and the manifest's account of the source.
  std::vector<CarriedObject> carried_objects = {};
  // Where tensors and objects stood in a nested object, by their keys in the target; others stand
  // on top. They make one object (MakeOneObject). For formats that store this. Attributes only for
  // a format that keeps them.
  EntryPaths paths = {};
  std::string origin = {};
  // Where the elements lie already, by tensor; nothing: they are written. Formats with `can_link`.
  std::optional<std::vector<std::vector<LinkedBox>>> links = {};
  // Several processes write the files together: nothing in them may depend on what was written.
  bool is_shared = false;
  bool is_cast = false;  // some tensor has another dtype than it had there
  // What Megatron stores as `args`: names and plain values. Called only for formats that store
  // them.
  std::function<Result<std::vector<std::pair<std::string, layout::Value>>>()> run_args = nullptr;
};

struct PlannedCheckpoint {
  WritePlan plan;
  // Where in the target the checkpoint's own directory is, without slashes at its ends; empty: the
  // target itself.
  std::string checkpoint_directory;
};

}  // namespace ckpt

#endif  // CKPT_FORMATS_WEIGHTS_REQUEST_H_
