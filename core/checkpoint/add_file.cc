#include "core/checkpoint/add_file.h"

#include <cstdint>
#include <utility>

namespace ckpt {

void AddFile(std::string name, Bytes content, WritePlan& plan) {
  plan.files.push_back({.name = std::move(name), .size_bytes = content.size()});
  plan.literals.push_back({.file = static_cast<std::uint32_t>(plan.files.size() - 1),
                           .offset_bytes = 0,
                           .bytes = std::move(content)});
}

void AddTextFile(std::string name, std::string_view content, WritePlan& plan) {
  Bytes bytes;
  Append(content, bytes);
  AddFile(std::move(name), std::move(bytes), plan);
}

}  // namespace ckpt
