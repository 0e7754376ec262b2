// Any bytes as a safetensors file. A header that is accepted and written again says the same.

#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/io/storage.h"
#include "formats/safetensors/header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::
      safetensors;  // NOLINT(google-build-using-namespace): a target is one function
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header =
      ReadHeader(*ckpt::MakeMemoryFile("fuzz", ckpt::Bytes(bytes.begin(), bytes.end())));
  if (!header.ok()) return 0;
  ckpt::Bytes again = SerializeHeader(header->metadata, header->tensors);
  std::uint64_t payload = 0;
  for (const TensorEntry& entry : header->tensors) payload = std::max(payload, entry.end);
  const std::string_view json = ckpt::AsText(again).substr(kLengthBytes);
  const auto reread = ParseHeader(json, payload, "again");
  CKPT_CHECK(reread.ok());
  CKPT_CHECK(reread->tensors == header->tensors && reread->metadata == header->metadata);
  return 0;
}
