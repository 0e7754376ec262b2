// The checkpoint of a golden case of Megatron-Core.
#ifndef CKPT_TESTS_FORMATS_TORCH_DIST_ITERATION_OF_H_
#define CKPT_TESTS_FORMATS_TORCH_DIST_ITERATION_OF_H_

#include <boost/filesystem/operations.hpp>

#include "core/io/path.h"
#include "core/io/posix_storage.h"
#include "tests/testing/golden.h"

namespace ckpt::testing {

// The one folder with a metadata.json below a Megatron root.
inline Path IterationOf(const GoldenCase& golden) {
  const auto entries = PosixStorage().List(golden.path);
  for (const DirectoryEntry& entry : *entries) {
    if (boost::filesystem::exists(golden.path / entry.name / "metadata.json")) {
      return golden.path / entry.name;
    }
  }
  return golden.path;
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_FORMATS_TORCH_DIST_ITERATION_OF_H_
