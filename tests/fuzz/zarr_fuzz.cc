// Any bytes as the description of a zarr array with some chunks, beside one that is whole.

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/check.h"
#include "core/io/memory_storage.h"
#include "formats/zarr/internal/source.h"
#include "tests/fuzz/read_everything.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto storage = ckpt::MakeMemoryStorage();
  const auto write = [&](const std::string& file, ckpt::ByteSpan bytes) {
    CKPT_CHECK(ckpt::WriteSmallFile(*storage, ckpt::Path("/c") / file, bytes).ok());
  };
  CKPT_CHECK(storage->MakeDirectories("/c/w").ok());
  write("metadata.json", ckpt::AsBytes(R"({"sharded_backend": "zarr"})"));
  write("w/.zarray", std::as_bytes(std::span(data, size)));
  const ckpt::Bytes chunk(16);
  for (const char* name : {"0", "1", "0.0", "0.1", "1.0", "1.1", "0.0.0", "3.0"}) {
    write("w/" + std::string(name), chunk);
  }
  const auto source = ckpt::zarr::OpenSource(*storage, "/c");
  if (source.ok()) ckpt::testing::ReadEverything(**source);
  return 0;
}
