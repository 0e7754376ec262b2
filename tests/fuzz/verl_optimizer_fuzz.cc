// Any bytes as the optimizer of both ranks, beside a model that verl saved.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/io/memory_storage.h"
#include "core/io/posix_storage.h"
#include "formats/verl/internal/source.h"
#include "tests/fuzz/read_everything.h"

namespace {

constexpr std::uint64_t kMaxModelBytes = 1 << 20;

// Of each rank.
std::vector<std::string> ReadModel() {
  std::vector<std::string> files;
  for (int rank = 0; rank < 2; ++rank) {
    const ckpt::Path golden = ckpt::Path(CKPT_SOURCE_DIR) / "tests/golden/verl/optimizer";
    files.push_back(ckpt::ReadSmallFile(ckpt::PosixStorage(),
                                        golden / fmt::format("model_world_size_2_rank_{}.pt", rank),
                                        kMaxModelBytes)
                        .value());
  }
  return files;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<std::string> model = ReadModel();
  const auto storage = ckpt::MakeMemoryStorage();
  CKPT_CHECK(storage->MakeDirectories("/c").ok());
  for (std::size_t rank = 0; rank < model.size(); ++rank) {
    const auto write = [&](const char* state, ckpt::ByteSpan bytes) {
      const ckpt::Path path = fmt::format("/c/{}_world_size_2_rank_{}.pt", state, rank);
      CKPT_CHECK(ckpt::WriteSmallFile(*storage, path, bytes).ok());
    };
    write("model", ckpt::AsBytes(model[rank]));
    write("optim", std::as_bytes(std::span(data, size)));
  }
  const auto source = ckpt::verl::OpenSource(*storage, "/c");
  // Whatever the optimizer is, the model is read.
  CKPT_CHECK(source.ok());
  ckpt::testing::ReadEverything(**source);
  return 0;
}
