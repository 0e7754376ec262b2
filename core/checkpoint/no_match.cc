#include "core/checkpoint/no_match.h"

#include <fmt/format.h>

#include "core/base/nearest_match.h"
#include "core/base/quote.h"

namespace ckpt {

Status NoKeyMatches(std::string_view option, std::string_view pattern,
                    std::span<const std::string> keys) {
  const std::string nearest = NearestMatch(pattern, keys);
  return Error(ErrorKind::kUsage, fmt::format("{} matches no key", option))
      .Actual(Quote(pattern))
      .Hint(nearest.empty() ? std::string(kListKeys) : "did you mean " + Quote(nearest) + "?");
}

std::vector<std::string> KeysOfEntries(const CheckpointIndex& index) {
  std::vector<std::string> keys;
  for (const GlobalTensor& tensor : index.tensors()) keys.push_back(tensor.key);
  for (const ObjectEntry& object : index.objects()) keys.push_back(object.key);
  return keys;
}

Status NoTensorMatches(std::string_view option, std::string_view pattern,
                       const CheckpointIndex& index) {
  std::vector<std::string> keys;
  for (const GlobalTensor& tensor : index.tensors()) keys.push_back(tensor.key);
  return NoKeyMatches(option, pattern, keys);
}

}  // namespace ckpt
