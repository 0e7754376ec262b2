// Any bytes as the buffers of a distributed optimizer, beside the models of two tensor ranks.

#include <array>
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
  using ckpt::mp_rank::EncodeRunFile;
  using ckpt::mp_rank::ParametersOfRank;
  static const std::array<ckpt::Bytes, 2> models = {EncodeRunFile(ParametersOfRank(0), {}),
                                                    EncodeRunFile(ParametersOfRank(1), {})};
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto storage = ckpt::MakeMemoryStorage();
  for (std::size_t rank = 0; rank < models.size(); ++rank) {
    const ckpt::Path directory = ckpt::Path("/c") / fmt::format("mp_rank_{:02}", rank);
    CKPT_CHECK(storage->MakeDirectories(directory).ok());
    CKPT_CHECK(ckpt::WriteSmallFile(*storage, directory / "model_optim_rng.pt", models[rank]).ok());
    CKPT_CHECK(ckpt::WriteSmallFile(*storage, directory / "distrib_optim.pt", bytes).ok());
  }
  const auto source = ckpt::mp_rank::OpenSource(*storage, "/c");
  // Whatever the optimizer is, the model is read.
  CKPT_CHECK(source.ok());
  ckpt::testing::ReadEverything(**source);
  return 0;
}
