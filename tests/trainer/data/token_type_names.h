// Numpy's names of the types of tokens.
#ifndef CKPT_TESTS_TRAINER_DATA_TOKEN_TYPE_NAMES_H_
#define CKPT_TESTS_TRAINER_DATA_TOKEN_TYPE_NAMES_H_

#include <array>
#include <string_view>

#include "core/base/check.h"
#include "trainer/data/internal/dataset_index.h"

namespace ckpt::trainer {

struct NamedTokenType {
  TokenType type;
  std::string_view name;
};
inline constexpr std::array kTokenTypes = {
    NamedTokenType{TokenType::kUint8, "uint8"}, NamedTokenType{TokenType::kInt8, "int8"},
    NamedTokenType{TokenType::kInt16, "int16"}, NamedTokenType{TokenType::kInt32, "int32"},
    NamedTokenType{TokenType::kInt64, "int64"}, NamedTokenType{TokenType::kUint16, "uint16"}};

[[nodiscard]] inline std::string_view TokenTypeName(TokenType type) {
  for (const NamedTokenType& known : kTokenTypes) {
    if (known.type == type) return known.name;
  }
  CKPT_CHECK(false);
}

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_TRAINER_DATA_TOKEN_TYPE_NAMES_H_
