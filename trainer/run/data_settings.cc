#include "trainer/run/data_settings.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trainer/data/byte_tokenizer.h"
#include "trainer/data/detect_kind.h"

namespace ckpt::train {
namespace {

using trainer::DataKind;
using trainer::LongExamples;

std::optional<std::int32_t> ReadToken(trainer::SettingsReader& reader, std::string_view name) {
  // A default that is not a valid value means that the setting is absent.
  const std::int64_t token = reader.Int(name, -1);
  if (token > std::numeric_limits<std::int32_t>::max()) {
    reader.Refuse(name, "is not a token", "less than 2^31");
    return std::nullopt;
  }
  if (token < 0) return std::nullopt;
  return static_cast<std::int32_t>(token);
}

bool IsOfExamples(DataKind kind) {
  return kind == DataKind::kTokenExamples || kind == DataKind::kPrompts ||
         kind == DataKind::kMessages;
}

bool IsOfBytes(DataKind kind) {
  return kind == DataKind::kText || kind == DataKind::kPrompts || kind == DataKind::kMessages;
}

// What restarts at the end of a document; none if nothing does.
Result<std::optional<trainer::DocumentEnds>> EndsOfDocuments(const DataSettings& settings,
                                                             DataKind kind) {
  // If data of both kinds are used, the settings may be meant for the other kind.
  if (!settings.asks_for_document_ends() || IsOfExamples(kind)) {
    return std::optional<trainer::DocumentEnds>();
  }
  trainer::DocumentEnds ends = {.mask_loss = settings.eod_mask_loss,
                                .reset_positions = settings.reset_position_ids,
                                .reset_attention = settings.reset_attention_mask};
  if (settings.eod_token) {
    ends.token = *settings.eod_token;
  } else if (kind == DataKind::kText) {
    ends.token = trainer::kByteEos;
  } else {
    return Error(
               ErrorKind::kUsage,
               "eod_mask_loss, reset_position_ids and reset_attention_mask need to know the token "
               "that ends a document")
        .Hint("set eod_token");
  }
  return std::optional(ends);
}

}  // namespace

DataSettings ReadDataSettings(trainer::SettingsReader& reader) {
  DataSettings settings;
  settings.data_path = reader.Text("data_path", "");
  settings.valid_data_path = reader.Text("valid_data_path", "");
  settings.data_kind =
      reader.OptionalWord<DataKind>("data_kind", {{"indexed", DataKind::kIndexed},
                                                  {"text", DataKind::kText},
                                                  {"token_documents", DataKind::kTokenDocuments},
                                                  {"token_examples", DataKind::kTokenExamples},
                                                  {"prompts", DataKind::kPrompts},
                                                  {"messages", DataKind::kMessages}});
  settings.shuffle = reader.Flag("shuffle", settings.shuffle);
  settings.packing = reader.Flag("packing", settings.packing);
  settings.long_examples = reader.Word<LongExamples>(
      "long_examples", {{"refuse", LongExamples::kRefuse}, {"truncate", LongExamples::kTruncate}});
  settings.pad_token = ReadToken(reader, "pad_token").value_or(settings.pad_token);
  settings.eod_mask_loss = reader.Flag("eod_mask_loss", settings.eod_mask_loss);
  settings.reset_position_ids = reader.Flag("reset_position_ids", settings.reset_position_ids);
  settings.reset_attention_mask =
      reader.Flag("reset_attention_mask", settings.reset_attention_mask);
  settings.eod_token = ReadToken(reader, "eod_token");
  return settings;
}

Result<Path> FindTokenizer(Storage& storage, const Path& assets) {
  if (assets.empty()) return Path();
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"}) {
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(assets / name));
    if (stat.type == FileType::kRegular) return assets / name;
  }
  return Path();
}

Status CheckTakesBytes(const DataSettings& settings, std::int64_t vocab_size) {
  CKPT_RETURN_IF_ERROR(trainer::CheckByteVocabulary(vocab_size));
  if (settings.tokenizer.empty()) return OkStatus();
  return Error(ErrorKind::kUsage, "text is read as bytes, but the model has its own tokenizer")
      .Actual(settings.tokenizer.string());
}

Status CheckTokensOf(const DataSettings& settings, std::int64_t vocab_size) {
  Status status;
  for (const auto& [name, token] : {std::pair("eod_token", settings.eod_token),
                                    std::pair("pad_token", std::optional(settings.pad_token))}) {
    if (!token || *token < vocab_size) continue;
    status.Add(Error(ErrorKind::kUsage, fmt::format("setting {} lies outside the vocabulary", name))
                   .Expected(fmt::format("[0, {})", vocab_size))
                   .Actual(fmt::format("{}", *token)));
  }
  return status;
}

Result<DataKind> KindOf(Storage& storage, const Path& path, const DataSettings& settings) {
  if (settings.data_kind) return *settings.data_kind;
  return trainer::DetectKind(storage, path);
}

Status CheckKindsUse(const DataSettings& settings, const std::vector<DataKind>& kinds) {
  const auto has = [&](auto is_such) { return std::ranges::any_of(kinds, is_such); };
  Status idle;
  const auto require = [&](bool is_used, std::string_view name, std::string_view data) {
    if (is_used) return;
    idle.Add(Error(ErrorKind::kUsage,
                   fmt::format("setting {} does nothing: the data are {}", name, data)));
  };
  const bool has_examples = has(IsOfExamples);
  const bool pads = has([](DataKind kind) { return kind == DataKind::kTokenExamples; });
  require(settings.packing || has_examples, "packing", "documents");
  require(settings.long_examples == LongExamples::kRefuse || has_examples, "long_examples",
          "documents");
  require(settings.pad_token == 0 || pads, "pad_token",
          has_examples ? "bytes, which have a padding of their own" : "documents");
  const bool has_documents = has(std::not_fn(IsOfExamples));
  for (const auto& [name, is_set] :
       {std::pair("eod_mask_loss", settings.eod_mask_loss),
        std::pair("reset_position_ids", settings.reset_position_ids),
        std::pair("reset_attention_mask", settings.reset_attention_mask)}) {
    require(!is_set || has_documents, name, "examples");
  }
  return idle;
}

std::string DataNotice(const Path& path, const trainer::SourceFacts& facts) {
  std::string text;
  if (facts.truncated > 0) {
    text = fmt::format("{} of {} examples are longer than a sequence and were truncated",
                       facts.truncated, facts.examples);
  }
  if (facts.unlabelled > 0) {
    text += fmt::format("{}{} of {} examples have no label left: nothing is learned of them",
                        text.empty() ? "" : "; ", facts.unlabelled, facts.examples);
  }
  return text.empty() ? "" : fmt::format("{}: {}", path.string(), text);
}

Result<std::shared_ptr<const trainer::SequenceSource>> OpenData(
    Storage& storage, const Path& path, const DataSettings& settings,
    const trainer::TrainConfig& config) {
  CKPT_ASSIGN_OR_RETURN(const DataKind kind, KindOf(storage, path, settings));
  if (IsOfBytes(kind)) {
    CKPT_RETURN_IF_ERROR(CheckTakesBytes(settings, config.model.vocab_size)
                             .File(path.string())
                             .Hint("give tokens of the model's own tokenizer (input_ids)"));
  }
  CKPT_ASSIGN_OR_RETURN(const std::optional<trainer::DocumentEnds> ends,
                        EndsOfDocuments(settings, kind));
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<trainer::SequenceSource> source,
                        trainer::OpenSource(storage, {.path = path,
                                                      .kind = kind,
                                                      .seq_length = config.seq_length,
                                                      .vocab_size = config.model.vocab_size,
                                                      .seed = config.seed,
                                                      .shuffle = settings.shuffle,
                                                      .ends = ends,
                                                      .pack = settings.packing,
                                                      .long_examples = settings.long_examples,
                                                      .pad_token = settings.pad_token}));
  return std::shared_ptr<const trainer::SequenceSource>(std::move(source));
}

}  // namespace ckpt::train
