#include "formats/pickle/held_number.h"

#include <string>

#include "core/json/json_reader.h"
#include "core/tensor/dtype.h"

namespace ckpt::pickle {

std::optional<double> HeldNumberOf(const JsonCursor& tensor, const HeldNumbers& numbers) {
  const std::optional<JsonCursor> dtype = tensor.Find("dtype");
  const std::optional<JsonCursor> digest = tensor.Find("sha256");
  if (!dtype || !digest) return std::nullopt;
  const Result<std::string> name = dtype->Text();
  const Result<std::string> sha256 = digest->Text();
  if (!name.ok() || !sha256.ok()) return std::nullopt;
  const std::optional<DType> parsed = ParseDType(*name);
  const auto found = parsed ? numbers.find({*parsed, *sha256}) : numbers.end();
  return found == numbers.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace ckpt::pickle
