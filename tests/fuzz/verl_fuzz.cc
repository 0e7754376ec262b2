// Any bytes as the file of verl's only rank, and as those of four.

#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/io/memory_storage.h"
#include "formats/verl/internal/source.h"
#include "tests/fuzz/read_everything.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const int ranks : {1, 4}) {
    const auto storage = ckpt::MakeMemoryStorage();
    CKPT_CHECK(storage->MakeDirectories("/c").ok());
    for (int rank = 0; rank < ranks; ++rank) {
      const ckpt::Path path = fmt::format("/c/model_world_size_{}_rank_{}.pt", ranks, rank);
      CKPT_CHECK(ckpt::WriteSmallFile(*storage, path, std::as_bytes(std::span(data, size))).ok());
    }
    const auto source = ckpt::verl::OpenSource(*storage, "/c");
    if (source.ok()) ckpt::testing::ReadEverything(**source);
  }
  return 0;
}
