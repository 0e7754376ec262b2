// Any text as JSON.

#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"
#include "core/json/json_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto document =
      ckpt::JsonDocument::Parse(ckpt::AsText(std::as_bytes(std::span(data, size))), "fuzz");
  if (document.ok() && document->root().kind() == ckpt::JsonKind::kObject) {
    (void)document->root().Members().ok();
  }
  return 0;
}
