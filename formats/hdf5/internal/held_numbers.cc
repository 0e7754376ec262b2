#include "formats/hdf5/internal/held_numbers.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/json/json_reader.h"
#include "core/json/json_writer.h"
#include "core/tensor/dtype.h"

namespace ckpt::hdf5 {
namespace {

template <typename T>
std::optional<Bytes> Integer(double number) {
  // One past the largest integer, which itself need not be a double.
  const double end = 2 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
  if (!(number >= -end && number < end) || std::floor(number) != number) return std::nullopt;
  Bytes element;
  AppendLe(static_cast<T>(number), element);
  return element;
}

// The element of a tensor that has this value; nothing if none has.
std::optional<Bytes> ElementOf(DType dtype, double number) {
  Bytes element;
  switch (dtype) {
    case DType::kFloat64:
      AppendLe(number, element);
      return element;
    case DType::kFloat32:
      if (std::abs(number) > std::numeric_limits<float>::max()) return std::nullopt;
      AppendLe(static_cast<float>(number), element);
      return element;
    case DType::kInt64:
      return Integer<std::int64_t>(number);
    case DType::kInt32:
      return Integer<std::int32_t>(number);
    case DType::kBool:
      if (number != 0 && number != 1) return std::nullopt;
      AppendLe<std::uint8_t>(number == 1 ? 1 : 0, element);
      return element;
    default:
      return std::nullopt;
  }
}

Status AddNumber(const JsonCursor& stored, HeldNumbers& numbers) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> pair, stored.Items());
  const auto bad = [&] {
    return Error(ErrorKind::kBadMetadata, "no dtype and a number of it")
        .Actual("at " + stored.where());
  };
  if (pair.size() != 2) return bad();
  CKPT_ASSIGN_OR_RETURN(const std::string name, pair[0].Text());
  CKPT_ASSIGN_OR_RETURN(const double number, pair[1].Double());
  const std::optional<DType> dtype = ParseDType(name);
  const std::optional<Bytes> element = dtype ? ElementOf(*dtype, number) : std::nullopt;
  if (!element) return bad();
  numbers[{*dtype, HashHex(HashAlgorithm::kSha256, *element)}] = number;
  return OkStatus();
}

}  // namespace

std::string EncodeNumbers(const HeldNumbers& numbers) {
  JsonWriter json;
  json.BeginArray();
  for (const auto& [tensor, number] : numbers) {
    if (!std::isfinite(number)) continue;
    json.BeginArray().Text(DTypeName(tensor.first)).Double(number).End();
  }
  json.End();
  return json.Take();
}

Result<HeldNumbers> ParseNumbers(std::string_view text) {
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::Parse(text, "numbers"));
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> stored, json.root().Items());
  HeldNumbers numbers;
  for (const JsonCursor& one : stored) CKPT_RETURN_IF_ERROR(AddNumber(one, numbers));
  return numbers;
}

}  // namespace ckpt::hdf5
