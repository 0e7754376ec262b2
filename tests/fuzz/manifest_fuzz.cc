// Any text as a `ckptkit.json`. What is accepted is written again as it was read.

#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/manifest/manifest.h"
#include "core/manifest/manifest_text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto manifest =
      ckpt::ParseManifest(ckpt::AsText(std::as_bytes(std::span(data, size))), "fuzz");
  if (!manifest.ok()) return 0;
  const auto again = ckpt::ParseManifest(ckpt::SerializeManifest(*manifest), "again");
  CKPT_CHECK(again.ok());
  return 0;
}
