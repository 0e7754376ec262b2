#include "trainer/data/byte_tokenizer.h"

namespace ckpt::trainer {

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
