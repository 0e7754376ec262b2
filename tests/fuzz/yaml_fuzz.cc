// Any text as YAML: what is accepted is JSON.

#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/json/json_reader.h"
#include "formats/megatron/internal/yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json =
      ckpt::megatron::YamlToJson(ckpt::AsText(std::as_bytes(std::span(data, size))), "fuzz");
  if (json.ok()) CKPT_CHECK(ckpt::JsonDocument::Parse(*json, "fuzz").ok());
  return 0;
}
