// A fresh directory that goes away with its object.
#ifndef CKPT_TESTS_TESTING_TEMP_DIR_H_
#define CKPT_TESTS_TESTING_TEMP_DIR_H_

#include <boost/filesystem/operations.hpp>

#include "core/io/path.h"

namespace ckpt::testing {

class TempDir {
 public:
  TempDir()
      : path_(boost::filesystem::temp_directory_path() /
              boost::filesystem::unique_path("ckptkit-test-%%%%-%%%%-%%%%")) {
    boost::filesystem::create_directories(path_);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    boost::system::error_code ignored;
    boost::filesystem::remove_all(path_, ignored);
  }
  const Path& path() const { return path_; }

 private:
  Path path_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_TEMP_DIR_H_
