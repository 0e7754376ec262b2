#include "core/checkpoint/source.h"

namespace ckpt {

std::string_view ProtectionName(Protection protection) {
  switch (protection) {
    case Protection::kNone:
      return "none";
    case Protection::kCrc32:
      return "crc32";
    case Protection::kIntegrityJson:
      return "integrity.json";
    case Protection::kManifest:
      return "manifest";
  }
  return "none";
}

bool SayTheSame(const RenderedObject& a, const RenderedObject& b) {
  return a.json == b.json && a.held == b.held;
}

}  // namespace ckpt
