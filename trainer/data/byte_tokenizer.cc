#include "trainer/data/byte_tokenizer.h"

#include <fmt/format.h>

namespace ckpt::trainer {

Status CheckByteVocabulary(std::int64_t vocab_size) {
  if (vocab_size == kByteVocabSize) return OkStatus();
  return Error(ErrorKind::kUsage, "text is read as bytes, but the model has another vocabulary")
      .Expected(fmt::format("vocab_size {}", kByteVocabSize))
      .Actual(fmt::format("{}", vocab_size));
}

void AppendByteTokens(std::string_view text, std::vector<std::int32_t>& out) {
  out.reserve(out.size() + text.size());
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
}

std::string TextOfByteTokens(std::span<const std::int32_t> tokens) {
  std::string text;
  for (const std::int32_t token : tokens) {
    if (token < 0 || token > 255) break;
    text.push_back(static_cast<char>(static_cast<unsigned char>(token)));
  }
  return text;
}

}  // namespace ckpt::trainer
