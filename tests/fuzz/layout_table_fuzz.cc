// Any text as a layout table.

#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"
#include "core/layout/layout_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)ckpt::layout::ParseLayoutTable(ckpt::AsText(std::as_bytes(std::span(data, size))), "fuzz")
      .ok();
  return 0;
}
