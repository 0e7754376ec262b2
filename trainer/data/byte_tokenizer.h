// The byte tokenizer: every byte of a text is a token. Needs no vocabulary, loses nothing, suits tests and small models.
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
inline constexpr std::int32_t kBytePad = 257;  // fills sequences up; never a label
inline constexpr std::int64_t kByteVocabSize = 258;

// Whether a model's tokens are these: any other vocabulary gives its numbers to pieces of text of its own, and bytes mean
// nothing to it. Errors: kUsage.
Status CheckByteVocabulary(std::int64_t vocab_size);

// Appends the bytes of `text`.
void AppendByteTokens(std::string_view text, std::vector<std::int32_t>& out);

// The text up to the first id that is no byte.
[[nodiscard]] std::string TextOfByteTokens(std::span<const std::int32_t> tokens);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_BYTE_TOKENIZER_H_
