// MadeDirectories: directories that are removed again if nothing was put into them.
#ifndef CKPT_CORE_IO_MADE_DIRECTORIES_H_
#define CKPT_CORE_IO_MADE_DIRECTORIES_H_

#include <vector>

#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"

namespace ckpt {

class MadeDirectories {
 public:
  // Creates `directory` and its parents, as MakeDurableDirectories does. `storage` must outlive
  // this. Errors: those of the storage; the directories it created are then removed.
  static Result<MadeDirectories> Make(Storage& storage, const Path& directory);

  MadeDirectories() = default;
  MadeDirectories(MadeDirectories&& other) noexcept;
  MadeDirectories& operator=(MadeDirectories&& other) noexcept;
  // Removes the directories that it created and that are empty. One that existed before stays.
  ~MadeDirectories();

 private:
  Storage* storage_ = nullptr;
  std::vector<Path> made_;  // innermost first
};

}  // namespace ckpt

#endif  // CKPT_CORE_IO_MADE_DIRECTORIES_H_
