// Any bytes as a `.metadata`.

#include <array>
#include <cstddef>
#include <cstdint>

#include "formats/dcp/metadata.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ckpt::IndexBuilder builder;
  const std::array files = {ckpt::dcp::MetadataFile{
      .name = "fuzz", .bytes = std::as_bytes(std::span(data, size)), .consumed = nullptr}};
  if (ckpt::dcp::ReadMetadata(files, builder).ok()) (void)builder.Build().ok();
  return 0;
}
