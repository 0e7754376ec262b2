#include "trainer/ops/product_algorithms.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/json/json_reader.h"
#include "core/json/json_writer.h"

namespace ckpt::trainer {
namespace {

constexpr std::size_t kDigitsOfWord = 16;

// "0000000000000042…", a word after the other.
std::string FormatAlgorithm(const ProductAlgorithm& algorithm) {
  return fmt::format("{:016x}", fmt::join(algorithm, ""));
}

Status BadMember(const JsonCursor& member, std::string_view what) {
  return Error(ErrorKind::kBadMetadata, fmt::format("{} at {}", what, member.where()));
}

Result<ProductAlgorithm> ParseAlgorithm(const JsonCursor& member) {
  CKPT_ASSIGN_OR_RETURN(const std::string text, member.Text());
  ProductAlgorithm algorithm{};
  const auto refusal = [&] {
    return BadMember(member, "this is not an algorithm")
        .Expected(fmt::format("{} hexadecimal digits", algorithm.size() * kDigitsOfWord))
        .Actual(text);
  };
  if (text.size() != algorithm.size() * kDigitsOfWord) return refusal();
  const char* digits = text.data();
  for (std::uint64_t& word : algorithm) {
    const char* const end = digits + kDigitsOfWord;
    const auto [stop, error] = std::from_chars(digits, end, word, 16);
    if (error != std::errc() || stop != end) return refusal();
    digits = end;
  }
  return algorithm;
}

Result<DType> ParseDTypeMember(const JsonCursor& member) {
  CKPT_ASSIGN_OR_RETURN(const std::string text, member.Text());
  const std::optional<DType> dtype = ParseDType(text);
  if (!dtype) return BadMember(member, "this is not a dtype").Actual(text);
  return *dtype;
}

// Every member is one of `known`: what a file says is used or refused.
Status CheckMembers(const JsonCursor& object, std::initializer_list<std::string_view> known) {
  CKPT_ASSIGN_OR_RETURN(const auto members, object.Members());
  for (const auto& [key, member] : members) {
    if (std::ranges::find(known, key) != known.end()) continue;
    return BadMember(member, "a member is not known")
        .Expected(fmt::format("{}", fmt::join(known, ", ")));
  }
  return OkStatus();
}

Result<ProductShape> ParseShape(const JsonCursor& product) {
  ProductShape shape;
  for (const auto& [key, size] :
       {std::pair("m", &shape.m), std::pair("n", &shape.n), std::pair("k", &shape.k)}) {
    CKPT_ASSIGN_OR_RETURN(const JsonCursor member, product.At(key));
    CKPT_ASSIGN_OR_RETURN(*size, member.Int64());
    if (*size < 1) return BadMember(member, "a size is below 1");
  }
  for (const auto& [key, flag] :
       {std::pair("transpose_a", &shape.transpose_a), std::pair("transpose_b", &shape.transpose_b),
        std::pair("accumulate", &shape.accumulate)}) {
    CKPT_ASSIGN_OR_RETURN(const JsonCursor member, product.At(key));
    CKPT_ASSIGN_OR_RETURN(*flag, member.Bool());
  }
  for (const auto& [key, dtype] :
       {std::pair("operands", &shape.operands), std::pair("result", &shape.result)}) {
    CKPT_ASSIGN_OR_RETURN(const JsonCursor member, product.At(key));
    CKPT_ASSIGN_OR_RETURN(*dtype, ParseDTypeMember(member));
  }
  return shape;
}

Result<ProductAlgorithms> ParseRoot(const JsonCursor& root) {
  CKPT_RETURN_IF_ERROR(CheckMembers(root, {"device", "library", "products"}));
  ProductAlgorithms algorithms;
  for (const auto& [key, to] : {std::pair("device", &algorithms.origin.device),
                                std::pair("library", &algorithms.origin.library)}) {
    CKPT_ASSIGN_OR_RETURN(const JsonCursor member, root.At(key));
    CKPT_ASSIGN_OR_RETURN(*to, member.Text());
  }
  CKPT_ASSIGN_OR_RETURN(const JsonCursor list, root.At("products"));
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> products, list.Items());
  for (const JsonCursor& product : products) {
    CKPT_RETURN_IF_ERROR(CheckMembers(product, {"m", "n", "k", "transpose_a", "transpose_b",
                                                "accumulate", "operands", "result", "algorithm"}));
    CKPT_ASSIGN_OR_RETURN(const ProductShape shape, ParseShape(product));
    CKPT_ASSIGN_OR_RETURN(const JsonCursor member, product.At("algorithm"));
    CKPT_ASSIGN_OR_RETURN(const ProductAlgorithm algorithm, ParseAlgorithm(member));
    if (!algorithms.of_shape.emplace(shape, algorithm).second) {
      return BadMember(product, "this product is there twice");
    }
  }
  return algorithms;
}

}  // namespace

std::string ProductShape::Text() const {
  return fmt::format("[{}, {}] {} [{}, {}]{} · [{}, {}]{}, {} to {}", m, n, accumulate ? "+=" : "=",
                     transpose_a ? k : m, transpose_a ? m : k, transpose_a ? "ᵀ" : "",
                     transpose_b ? n : k, transpose_b ? k : n, transpose_b ? "ᵀ" : "",
                     DTypeName(operands), DTypeName(result));
}

Result<ProductAlgorithms> ParseProductAlgorithms(std::string_view text, std::string_view name) {
  CKPT_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, name));
  Result<ProductAlgorithms> algorithms = ParseRoot(document.root());
  if (!algorithms.ok()) return Status(algorithms.status()).File(name);
  return algorithms;
}

std::string FormatProductAlgorithms(const ProductAlgorithms& algorithms) {
  JsonWriter json;
  json.BeginObject().Key("device").Text(algorithms.origin.device);
  json.Key("library").Text(algorithms.origin.library).Key("products").BeginArray();
  for (const auto& [shape, algorithm] : algorithms.of_shape) {
    json.BeginObject().Key("m").Int(shape.m).Key("n").Int(shape.n).Key("k").Int(shape.k);
    json.Key("transpose_a").Bool(shape.transpose_a).Key("transpose_b").Bool(shape.transpose_b);
    json.Key("accumulate").Bool(shape.accumulate);
    json.Key("operands").Text(DTypeName(shape.operands));
    json.Key("result").Text(DTypeName(shape.result));
    json.Key("algorithm").Text(FormatAlgorithm(algorithm)).End();
  }
  json.End().End();
  return json.Take() + "\n";
}

ProductAlgorithms ProductTrial::Chosen() const {
  ProductAlgorithms algorithms = {.origin = origin, .of_shape = {}};
  for (const auto& [shape, product] : products) {
    if (product.chosen == 0) continue;
    algorithms.of_shape.emplace(shape, product.candidates[product.chosen]);
  }
  return algorithms;
}

}  // namespace ckpt::trainer
