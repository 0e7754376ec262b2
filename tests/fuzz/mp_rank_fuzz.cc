// Any bytes as the file of one of Megatron's ranks, and as those of four.

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "core/base/check.h"
#include "core/io/memory_storage.h"
#include "formats/mp_rank/internal/source.h"
#include "tests/fuzz/read_everything.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto open = [&](std::initializer_list<const char*> ranks) {
    const auto storage = ckpt::MakeMemoryStorage();
    for (const char* rank : ranks) {
      const ckpt::Path directory = ckpt::Path("/c") / rank;
      CKPT_CHECK(storage->MakeDirectories(directory).ok());
      CKPT_CHECK(ckpt::WriteSmallFile(*storage, directory / "model_optim_rng.pt", bytes).ok());
    }
    const auto source = ckpt::mp_rank::OpenSource(*storage, "/c");
    if (source.ok()) ckpt::testing::ReadEverything(**source);
  };
  open({"mp_rank_00"});
  open({"mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001"});
  return 0;
}
