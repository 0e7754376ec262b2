// Any text as a `model.safetensors.index.json`.

#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "formats/safetensors/sharded_index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::
      safetensors;  // NOLINT(google-build-using-namespace): a target is one function
  const auto index = ParseShardedIndex(ckpt::AsText(std::as_bytes(std::span(data, size))), "fuzz");
  if (!index.ok()) return 0;
  const auto again = ParseShardedIndex(SerializeShardedIndex(*index), "again");
  CKPT_CHECK(again.ok() && again->weight_map == index->weight_map);
  return 0;
}
