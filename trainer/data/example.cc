#include "trainer/data/example.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/quote.h"
#include "core/json/json_scanner.h"
#include "trainer/data/byte_tokenizer.h"
#include "trainer/data/sequence_source.h"

namespace ckpt::trainer {
namespace {

constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};
constexpr std::string_view kAssistant = "assistant";
constexpr std::int64_t kIgnoredLabel = -100;  // PyTorch's ignore_index

struct Message {
  std::string role;
  std::string content;
};

struct Fields {
  std::optional<std::vector<std::int64_t>> input_ids;
  std::optional<std::vector<std::int64_t>> labels;
  std::optional<std::vector<std::int64_t>> loss_mask;
  std::optional<std::string> text;
  std::optional<std::string> prompt;
  std::optional<std::string> completion;
  std::optional<std::vector<Message>> messages;
};

Status BadField(std::string_view key, std::string_view what, std::string_view where) {
  return Error(ErrorKind::kBadItem, fmt::format("field \"{}\" {}", key, what)).File(where);
}

// Checks that the value has this kind and that its key occurs for the first time.
template <typename T>
bool Expect(JsonScanner& scan, std::string_view key, JsonKind kind, const std::optional<T>& field) {
  if (field) {
    scan.Fail(ErrorKind::kBadItem, fmt::format("field \"{}\" occurs twice", key));
  } else if (scan.ok() && scan.Peek() != kind) {
    scan.Fail(ErrorKind::kBadItem,
              fmt::format("field \"{}\" must be a JSON {}", key, JsonKindName(kind)),
              JsonKindName(scan.Peek()));
  }
  return scan.ok();
}

void Take(JsonScanner& scan, std::string_view key, std::optional<std::string>& field) {
  if (Expect(scan, key, JsonKind::kText, field)) field = scan.Text();
}

void Take(JsonScanner& scan, std::string_view key,
          std::optional<std::vector<std::int64_t>>& field) {
  if (Expect(scan, key, JsonKind::kArray, field)) field = scan.Ints();
}

void Take(JsonScanner& scan, std::string_view key, std::optional<std::vector<Message>>& field) {
  if (!Expect(scan, key, JsonKind::kArray, field)) return;
  field.emplace();
  for (scan.BeginArray(); scan.NextItem();) {
    std::optional<std::string> role;
    std::optional<std::string> content;
    std::string member;
    for (scan.BeginObject(); scan.NextMember(member);) {
      if (member == "role") {
        Take(scan, "role", role);
      } else if (member == "content") {
        Take(scan, "content", content);
      } else {
        scan.Skip();
      }
    }
    if (!role || !content) {
      scan.Fail(ErrorKind::kBadItem,
                fmt::format("message {} has no \"{}\"", field->size(), role ? "content" : "role"));
      return;
    }
    if (std::ranges::find(kRoles, *role) == kRoles.end()) {
      scan.Fail(ErrorKind::kBadItem,
                fmt::format("message {} has a role other than {}", field->size(),
                            fmt::join(kRoles, ", ")),
                Quote(*role));
      return;
    }
    field->push_back({*std::move(role), *std::move(content)});
  }
}

Result<Fields> ScanFields(std::string_view line, std::string_view where, ExampleKind kind) {
  JsonScanner scan(line, where);
  Fields fields;
  std::string key;
  for (scan.BeginObject(); scan.NextMember(key);) {
    if (kind == ExampleKind::kTokens && key == "input_ids") {
      Take(scan, key, fields.input_ids);
    } else if (kind == ExampleKind::kTokens && key == "labels") {
      Take(scan, key, fields.labels);
    } else if (kind == ExampleKind::kTokens && key == "loss_mask") {
      Take(scan, key, fields.loss_mask);
    } else if (kind == ExampleKind::kText && key == "text") {
      Take(scan, key, fields.text);
    } else if (kind == ExampleKind::kPrompt && key == "prompt") {
      Take(scan, key, fields.prompt);
    } else if (kind == ExampleKind::kPrompt && key == "completion") {
      Take(scan, key, fields.completion);
    } else if (kind == ExampleKind::kMessages && key == "messages") {
      Take(scan, key, fields.messages);
    } else {
      scan.Skip();
    }
  }
  Status status = scan.Finish();
  if (status.ok()) return fields;
  if (key.empty()) return status;
  return std::move(status).While("reading field " + Quote(key) + " or what follows it");
}

// Appends the bytes of a text. `learned`: whether they are labels.
void AppendText(std::string_view text, bool learned, Example& example) {
  AppendByteTokens(text, example.tokens);
  if (learned) {
    AppendByteTokens(text, example.targets);
  } else {
    example.targets.resize(example.tokens.size(), kNoLabel);
  }
}

void AppendEnd(Example& example) {
  example.tokens.push_back(kByteEos);
  example.targets.push_back(kByteEos);
}

Result<std::int32_t> CheckedToken(std::int64_t token, std::string_view key, std::size_t place,
                                  std::string_view where, std::int64_t vocab_size) {
  if (token >= 0 && token < vocab_size) return static_cast<std::int32_t>(token);
  return Error(ErrorKind::kOutOfRange,
               fmt::format("field \"{}\" has a token outside the vocabulary", key))
      .File(where)
      .Expected(fmt::format("[0, {})", vocab_size))
      .Actual(fmt::format("{} at {}", token, place))
      .Hint("check that the data was made with the model's tokenizer");
}

Status ApplyLabels(const std::vector<std::int64_t>& labels, std::string_view where,
                   std::int64_t vocab_size, Example& example) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == kIgnoredLabel || labels[i] == kNoLabel) {
      example.targets[i] = kNoLabel;
      continue;
    }
    CKPT_ASSIGN_OR_RETURN(example.targets[i],
                          CheckedToken(labels[i], "labels", i, where, vocab_size));
  }
  return OkStatus();
}

Status ApplyMask(const std::vector<std::int64_t>& mask, std::string_view where, Example& example) {
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] != 0 && mask[i] != 1) {
      return BadField("loss_mask", "holds a number that is neither 0 nor 1", where)
          .Actual(fmt::format("{} at {}", mask[i], i));
    }
    if (mask[i] == 0) example.targets[i] = kNoLabel;
  }
  return OkStatus();
}

Result<Example> TokensExample(const Fields& fields, std::string_view where,
                              const ExampleFormat& format) {
  if (!fields.input_ids) return BadField("input_ids", "is missing", where);
  const std::vector<std::int64_t>& ids = *fields.input_ids;
  const std::string_view extra = fields.labels ? "labels" : "loss_mask";
  const auto& chosen = fields.labels ? fields.labels : fields.loss_mask;
  if (chosen && format.whole_documents) {
    return BadField(extra, "is not allowed in documents, of which every token is learned", where)
        .Hint("set data_kind to train on the lines as examples, or leave the field out");
  }
  if (fields.labels && fields.loss_mask) {
    return BadField("loss_mask", "cannot be combined with \"labels\"", where);
  }
  if (chosen && chosen->size() != ids.size()) {
    return BadField(extra, "must have as many elements as \"input_ids\"", where)
        .Expected(fmt::format("{}", ids.size()))
        .Actual(fmt::format("{}", chosen->size()));
  }
  const std::size_t least = format.whole_documents ? 1 : 2;
  if (ids.size() < least) {
    return BadField("input_ids", fmt::format("must have at least {} tokens", least), where)
        .Actual(fmt::format("{}", ids.size()));
  }
  Example example;
  example.tokens.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    CKPT_ASSIGN_OR_RETURN(const std::int32_t token,
                          CheckedToken(ids[i], "input_ids", i, where, format.vocab_size));
    example.tokens.push_back(token);
  }
  example.targets = example.tokens;
  if (fields.labels) {
    CKPT_RETURN_IF_ERROR(ApplyLabels(*fields.labels, where, format.vocab_size, example));
  }
  if (fields.loss_mask) CKPT_RETURN_IF_ERROR(ApplyMask(*fields.loss_mask, where, example));
  return example;
}

Result<Example> TextExample(const Fields& fields, std::string_view where,
                            const ExampleFormat& format) {
  if (!fields.text) return BadField("text", "is missing", where);
  if (fields.text->empty() && !format.whole_documents) return BadField("text", "is empty", where);
  Example example;
  AppendText(*fields.text, true, example);
  AppendEnd(example);
  return example;
}

Result<Example> PromptExample(const Fields& fields, std::string_view where) {
  if (!fields.prompt) return BadField("prompt", "is missing", where);
  if (!fields.completion) return BadField("completion", "is missing", where);
  if (fields.prompt->empty() && fields.completion->empty()) {
    return BadField("completion", "is empty, and so is \"prompt\"", where);
  }
  Example example;
  AppendText(*fields.prompt, false, example);
  AppendText(*fields.completion, true, example);
  AppendEnd(example);
  return example;
}

Result<Example> MessagesExample(const Fields& fields, std::string_view where) {
  if (!fields.messages) return BadField("messages", "is missing", where);
  Example example;
  bool has_answer = false;
  for (const Message& message : *fields.messages) {
    AppendText(message.role + ": ", false, example);
    if (message.role == kAssistant) {
      AppendText(message.content, true, example);
      AppendEnd(example);
      has_answer = true;
    } else {
      AppendText(message.content + "\n", false, example);
    }
  }
  if (!has_answer) {
    return BadField("messages", "has no message of the assistant, so there is nothing to learn",
                    where);
  }
  return example;
}

}  // namespace

Result<Example> ParseExample(std::string_view line, std::string_view where,
                             const ExampleFormat& format) {
  CKPT_CHECK(format.kind == ExampleKind::kTokens || format.vocab_size >= kByteVocabSize);
  CKPT_ASSIGN_OR_RETURN(const Fields fields, ScanFields(line, where, format.kind));
  switch (format.kind) {
    case ExampleKind::kTokens:
      return TokensExample(fields, where, format);
    case ExampleKind::kText:
      return TextExample(fields, where, format);
    case ExampleKind::kPrompt:
      return PromptExample(fields, where);
    case ExampleKind::kMessages:
      return MessagesExample(fields, where);
  }
  CKPT_CHECK(false);
}

}  // namespace ckpt::trainer
