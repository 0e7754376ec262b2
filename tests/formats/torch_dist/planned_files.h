// Checkpoints as they are planned, in memory.
#ifndef CKPT_TESTS_FORMATS_TORCH_DIST_PLANNED_FILES_H_
#define CKPT_TESTS_FORMATS_TORCH_DIST_PLANNED_FILES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gmock/gmock.h>

#include "core/base/bytes.h"
#include "core/checkpoint/write_plan.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "tests/testing/matchers.h"

namespace ckpt::testing {

// Writes a planned file below /run, with zeros for the tensors' elements and what frames them.
inline void WritePlannedFile(const WritePlan& plan, std::uint32_t file, Storage& storage) {
  Bytes content(plan.files[file].size_bytes);
  for (const WriteLiteral& literal : plan.literals) {
    if (literal.file != file) continue;
    std::ranges::copy(literal.bytes,
                      content.begin() + static_cast<std::ptrdiff_t>(literal.offset_bytes));
  }
  const Path path = Path("/run") / plan.files[file].name;
  EXPECT_THAT(storage.MakeDirectories(path.parent_path()), IsOk());
  EXPECT_THAT(WriteSmallFile(storage, path, content), IsOk());
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_FORMATS_TORCH_DIST_PLANNED_FILES_H_
