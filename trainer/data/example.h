// One line of a JSONL file as tokens, with those that are to be learned.
#ifndef CKPT_TRAINER_DATA_EXAMPLE_H_
#define CKPT_TRAINER_DATA_EXAMPLE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace ckpt::trainer {

// What the lines of a file are. Fields that are not named here are ignored.
enum class ExampleKind : std::uint8_t {
  // "input_ids", and at most one of
  //   "labels"     as many: the token to predict at this place, or -100 (or -1) for none. They are
  //                not shifted, as in Transformers: the tokens before i predict labels[i].
  //   "loss_mask"  as many, 0 or 1: whether to predict input_ids[i]. Not shifted either.
  // Without both, every token is learned.
  kTokens,
  kText,    // "text": its bytes and the end token; all are learned
  kPrompt,  // "prompt", "completion": bytes; the completion and an end token are learned
  // "messages": [{"role", "content"}, …]; the assistant's words and an end token after each of its
  // messages are learned.
  kMessages,
};

struct ExampleFormat {
  ExampleKind kind = ExampleKind::kTokens;
  std::int64_t vocab_size = 0;
  // Every token of a line is learned: "labels" and "loss_mask" are refused.
  bool whole_documents = false;
};

struct Example {
  std::vector<std::int32_t> tokens;  // at least two; in a document at least one
  // As many: the token to predict at this place, or kNoLabel. Not shifted.
  std::vector<std::int32_t> targets;
};

// `where` ("data.jsonl:17") appears in errors, which also name the field.
//
// A message is laid out as "<role>: <content>\n", and one of the assistant as "assistant:
// <content>" with the end token. Roles are system, user, assistant and tool. To ask a trained
// model, end the text with "assistant: ".
//
// REQUIRES: vocab_size is at least the byte tokenizer's, unless the kind is kTokens.
// Errors: kBadMetadata, kResource (not JSON, or nested too deeply), kBadItem (a field that is
// missing, has another type, occurs twice or makes no sense), kOutOfRange (a token outside the
// vocabulary).
Result<Example> ParseExample(std::string_view line, std::string_view where,
                             const ExampleFormat& format);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_EXAMPLE_H_
