// Any bytes as the buffers of a distributed optimizer, beside the models of two tensor ranks.

#include <cstddef>
#include <cstdint>
#include <span>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/io/memory_storage.h"
#include "formats/mp_rank/internal/source.h"
#include "tests/formats/mp_rank/run_files.h"
#include "tests/fuzz/read_everything.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto storage = ckpt::MakeMemoryStorage();
  for (int rank = 0; rank < 2; ++rank) {
    const ckpt::Path directory = ckpt::Path("/c") / fmt::format("mp_rank_{:02}", rank);
    const ckpt::Bytes model =
        ckpt::mp_rank::EncodeRunFile(ckpt::mp_rank::ParametersOfRank(rank), {});
    CKPT_CHECK(storage->MakeDirectories(directory).ok());
    CKPT_CHECK(ckpt::WriteSmallFile(*storage, directory / "model_optim_rng.pt", model).ok());
    CKPT_CHECK(ckpt::WriteSmallFile(*storage, directory / "distrib_optim.pt", bytes).ok());
  }
  const auto source = ckpt::mp_rank::OpenSource(*storage, "/c");
  // Whatever the optimizer is, the model is read.
  CKPT_CHECK(source.ok());
  ckpt::testing::ReadEverything(**source);
  return 0;
}
