// One line of a JSONL file as tokens, and which of them are to be learned.
#ifndef CKPT_TRAINER_DATA_EXAMPLE_H_
#define CKPT_TRAINER_DATA_EXAMPLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace ckpt::trainer {

// What the lines of a file are. Fields that are not named here are passed over.
enum class ExampleKind : std::uint8_t {
  // "input_ids", and at most one of
  //   "labels"     as many: the token to be predicted at this place, -100 (or -1) where none is. As Transformers has
  //                them they are not shifted: labels[i] is predicted from the tokens before i.
  //   "loss_mask"  as many, 0 or 1: whether input_ids[i] is to be predicted. Not shifted either.
  // Without them every token is learned.
  kTokens,
  kText,      // "text": its bytes and the end token, all learned
  kPrompt,    // "prompt", "completion": bytes; the completion and an end token are learned
  kMessages,  // "messages": [{"role", "content"}, …]; what the assistant says, and an end token after it, is learned
};

struct ExampleFormat {
  ExampleKind kind = ExampleKind::kTokens;
  std::int64_t vocab_size = 0;
  // Lines are documents that are learned as a whole: "labels" and "loss_mask" are refused.
  bool whole_documents = false;
};

struct Example {
  std::vector<std::int32_t> tokens;  // at least two, one in a document
  std::vector<std::int32_t>
      targets;  // as many: what is predicted at this place, or kNoLabel; not shifted
};

// `where` ("data.jsonl:17") appears in errors, which name the field too.
//
// Messages are laid out as "<role>: <content>\n", those of the assistant as "assistant: <content>" and the end token;
// roles are system, user, assistant and tool. To ask a trained model, end with "assistant: ".
//
// REQUIRES: vocab_size holds the byte tokenizer's, unless the kind is kTokens.
// Errors: kBadMetadata, kResource (not JSON, or too deep), kBadItem (a field that is missing, of another type, twice
//         there, or makes no sense), kOutOfRange (a token outside the vocabulary).
Result<Example> ParseExample(std::string_view line, std::string_view where,
                             const ExampleFormat& format);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_EXAMPLE_H_
