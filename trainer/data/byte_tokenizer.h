// The byte tokenizer: every byte of a text is a token. It needs no vocabulary, loses nothing, and
// suits tests and small models.
#ifndef CKPT_TRAINER_DATA_BYTE_TOKENIZER_H_
#define CKPT_TRAINER_DATA_BYTE_TOKENIZER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace ckpt::trainer {

// Ids 0 to 255 are bytes.
inline constexpr std::int32_t kByteEos = 256;  // ends documents and answers
inline constexpr std::int32_t kBytePad = 257;  // fills the rest of a sequence; never a label
inline constexpr std::int64_t kByteVocabSize = 258;

// Checks that the model's vocabulary is this one. In any other vocabulary these numbers stand for
// other pieces of text. Errors: kUsage.
Status CheckByteVocabulary(std::int64_t vocab_size);

// Appends the bytes of `text`.
void AppendByteTokens(std::string_view text, std::vector<std::int32_t>& out);

// The text before the first id that is not a byte.
[[nodiscard]] std::string TextOfByteTokens(std::span<const std::int32_t> tokens);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_BYTE_TOKENIZER_H_
