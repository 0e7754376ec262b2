#include "tools/ckpt-train/data_settings.h"

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
  // A default that cannot be given stands for absence.
  const std::int64_t token = reader.Int(name, -1);
  if (token > std::numeric_limits<std::int32_t>::max()) {
    reader.Refuse(name, "is no token", "less than 2^31");
    return std::nullopt;
  }
  if (token < 0) return std::nullopt;
  return static_cast<std::int32_t>(token);
}

// What starts anew where a document ends; none if nothing does.
Result<std::optional<trainer::DocumentEnds>> EndsOfDocuments(const DataSettings& settings,
                                                             DataKind kind) {
  trainer::DocumentEnds ends = {.mask_loss = settings.eod_mask_loss,
                                .reset_positions = settings.reset_position_ids,
                                .reset_attention = settings.reset_attention_mask};
  if (!ends.mask_loss && !ends.reset_positions && !ends.reset_attention) {
    return std::optional<trainer::DocumentEnds>();
  }
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

Result<std::shared_ptr<const trainer::SequenceSource>> OpenData(
    Storage& storage, const Path& path, const DataSettings& settings,
    const trainer::TrainConfig& config) {
  DataKind kind = settings.data_kind.value_or(DataKind::kIndexed);
  if (!settings.data_kind) {
    CKPT_ASSIGN_OR_RETURN(kind, trainer::DetectKind(storage, path));
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
