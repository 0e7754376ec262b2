// Any text as what a training program with FSDP2 stored beside its weights. Each line is an entry:
// `key=3.5` a number, `key~` a moment of two elements, `key JSON` an object.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "formats/fsdp2/internal/read_run.h"
#include "tests/testing/stated_source.h"

namespace ckpt {
namespace {

MemoryTensor Number(std::string key, const std::string& text) {
  const float value = std::strtof(text.c_str(), nullptr);
  MemoryTensor tensor{.key = std::move(key), .shape = {}, .values = Bytes(sizeof(value))};
  std::memcpy(tensor.values.data(), &value, sizeof(value));
  return tensor;
}

testing::StatedSource SourceOf(std::string_view text) {
  std::vector<MemoryTensor> tensors;
  testing::StatedObjects objects;
  std::set<std::string> keys;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t mark = line.find_first_of("=~ ");
    if (mark == std::string_view::npos) continue;
    std::string key(line.substr(0, mark));
    if (!keys.insert(key).second) continue;
    const std::string value(line.substr(mark + 1));
    if (line[mark] == ' ') {
      objects[std::move(key)] = value;
    } else if (line[mark] == '=') {
      tensors.push_back(Number(std::move(key), value));
    } else {
      tensors.push_back({.key = std::move(key), .shape = {2}, .values = Bytes(8)});
    }
  }
  return {std::move(tensors), std::move(objects)};
}

}  // namespace
}  // namespace ckpt

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto source = ckpt::SourceOf(ckpt::AsText(std::as_bytes(std::span(data, size))));
  (void)ckpt::fsdp2::HoldsRun(source.index());
  (void)ckpt::fsdp2::HoldsGroups(source);
  (void)ckpt::fsdp2::ReadArgs(source).ok();
  for (const auto detail : {ckpt::RunDetail::kToResume, ckpt::RunDetail::kWhole}) {
    (void)ckpt::fsdp2::ReadRun(source, detail).ok();
  }
  return 0;
}
