// MadeDirectories: directories that are there as long as they are needed, and go again if nothing is put in.
#ifndef CKPT_CORE_IO_MADE_DIRECTORIES_H_
#define CKPT_CORE_IO_MADE_DIRECTORIES_H_

#include <vector>

#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"

namespace ckpt {

class MadeDirectories {
 public:
  // Makes `directory` and those above it, as MakeDurableDirectories. `storage` outlives this. Errors: those of the storage;
  // then nothing that it made is left.
  static Result<MadeDirectories> Make(Storage& storage, const Path& directory);

  MadeDirectories() = default;
  MadeDirectories(MadeDirectories&& other) noexcept;
  MadeDirectories& operator=(MadeDirectories&& other) noexcept;
  // Removes those that it made and that hold nothing. A directory that was there before stays.
  ~MadeDirectories();

 private:
  Storage* storage_ = nullptr;
  std::vector<Path> made_;  // innermost first
};

}  // namespace ckpt

#endif  // CKPT_CORE_IO_MADE_DIRECTORIES_H_
