// A scratch directory in memory where the system has such a place: a disk would only make it
// slower.
#ifndef CKPT_TESTS_RELIABILITY_FAST_DIR_H_
#define CKPT_TESTS_RELIABILITY_FAST_DIR_H_

#include <boost/filesystem/operations.hpp>

#include "core/io/path.h"

namespace ckpt::testing {

// Removed with everything in it when this ends.
class FastDir {
 public:
  FastDir()
      : path_((boost::filesystem::exists("/dev/shm") ? Path("/dev/shm")
                                                     : boost::filesystem::temp_directory_path()) /
              boost::filesystem::unique_path("ckptkit-test-%%%%-%%%%-%%%%")) {
    boost::filesystem::create_directories(path_);
  }
  FastDir(const FastDir&) = delete;
  FastDir& operator=(const FastDir&) = delete;
  ~FastDir() {
    boost::system::error_code ignored;
    boost::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const Path& path() const { return path_; }

 private:
  Path path_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_FAST_DIR_H_
