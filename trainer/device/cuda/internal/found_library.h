// FoundLibrary: functions of a shared library that is looked for when a program runs.
#ifndef CKPT_TRAINER_DEVICE_CUDA_INTERNAL_FOUND_LIBRARY_H_
#define CKPT_TRAINER_DEVICE_CUDA_INTERNAL_FOUND_LIBRARY_H_

#include <dlfcn.h>
#include <string>
#include <type_traits>

namespace ckpt::trainer {

// It stays loaded.
class FoundLibrary {
 public:
  explicit FoundLibrary(const char* name) : library_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) why_not_ = dlerror();
  }

  [[nodiscard]] bool is_there() const { return library_ != nullptr; }
  [[nodiscard]] const std::string& why_not() const { return why_not_; }

  // `function` = the library's, or null. REQUIRES: is_there().
  template <typename Function>
  void Load(const char* name, Function& function) {
    function = reinterpret_cast<std::remove_reference_t<Function>>(dlsym(library_, name));
    has_all_ = has_all_ && function != nullptr;
  }
  // Whether no function that was asked for is missing.
  [[nodiscard]] bool has_all() const { return has_all_; }

 private:
  void* const library_;
  std::string why_not_;
  bool has_all_ = true;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CUDA_INTERNAL_FOUND_LIBRARY_H_
