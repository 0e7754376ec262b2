// Plans a file as torch.save writes it of a nested state: tensors, and whatever else.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_STATE_FILE_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_STATE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/entry_paths.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"

namespace ckpt::torch_save {

struct StateFile {
  std::string name = {};
  std::vector<TargetTensor> tensors = {};
  std::vector<MemoryTensor> known_tensors = {};  // small: their elements are in the plan
  std::vector<PickledEntry> objects = {};
  EntryPaths paths = {};  // by key: where it stands; other entries stand on top
  // A manifest without files, which says where the checkpoint came from; empty: nothing.
  std::string origin = {};
};

// How a target shall be stored, where formats leave a choice.
struct AskedForm {
  int files = 0;
  std::uint64_t max_file_bytes = 0;
  bool is_compressed = false;
};

// Errors: kUsage (compression, several files).
Status CheckIsOneFile(const AskedForm& asked);

// Every tensor has a storage of its own, and the file the checksums of all bytes. A reader of ours
// finds each entry again under its key. So where the nested object would not show all of them, they
// stand on top, and where an object is what a reader would take apart, a record of the archive says
// that it is one.
//
// Errors: those of CountTargetBytes; kAlreadyExists (a key twice); those of pickle::CopyValue for
// the objects; kUnsupported (entries that cannot be told apart).
Result<WritePlan> PlanStateFile(StateFile state);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_STATE_FILE_H_
