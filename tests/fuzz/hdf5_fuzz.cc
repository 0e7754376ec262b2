// Any bytes as an HDF5 file, with the elements and objects of what it accepts.

#include <cstddef>
#include <cstdint>

#include "core/base/check.h"
#include "core/io/memory_storage.h"
#include "formats/hdf5/internal/source.h"
#include "tests/fuzz/read_everything.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto storage = ckpt::MakeMemoryStorage();
  CKPT_CHECK(storage->MakeDirectories("/f").ok());
  CKPT_CHECK(ckpt::WriteSmallFile(*storage, "/f/f.h5", std::as_bytes(std::span(data, size))).ok());
  const auto source = ckpt::hdf5::OpenSource(*storage, "/f/f.h5");
  if (source.ok()) ckpt::testing::ReadEverything(**source);
  return 0;
}
