// How an execution comes by a file that it fills: it makes the file, or takes over what is there.
#ifndef CKPT_CORE_EXEC_INTERNAL_PREPARE_OUTPUT_H_
#define CKPT_CORE_EXEC_INTERNAL_PREPARE_OUTPUT_H_

#include <cstdint>
#include <memory>

#include "core/base/result.h"
#include "core/exec/internal/output_file.h"
#include "core/io/storage.h"

namespace ckpt {

struct PlannedFile {
  Path path;
  std::uint64_t size_bytes = 0;
  // It grows as it is written, up to `size_bytes`, because its items are compressed.
  bool is_compressed = false;
};

// Both give the file its whole size, except one that is compressed and was begun: a full disk
// shows before hours of work. Errors: those of Storage.

// Makes the file, or takes over what an interrupted run left of it. Other workers may do the same
// with the file at the same time, and may have filled parts of it.
Result<std::unique_ptr<OutputFile>> PrepareOutput(Storage& storage, const PlannedFile& file);

// For a new directory. A process of a job that died may still run and continue to fill files of
// these names: it must not find the files of this job, and this job must not use its files. Errors:
// kAlreadyExists.
Result<std::unique_ptr<OutputFile>> CreateOutput(Storage& storage, const PlannedFile& file);

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_INTERNAL_PREPARE_OUTPUT_H_
