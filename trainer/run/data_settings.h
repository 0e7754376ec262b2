// The settings of a run's data.
#ifndef CKPT_TRAINER_RUN_DATA_SETTINGS_H_
#define CKPT_TRAINER_RUN_DATA_SETTINGS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "trainer/data/open_source.h"
#include "trainer/data/sequence_source.h"
#include "trainer/model/settings_reader.h"
#include "trainer/step/train_config.h"

namespace ckpt::train {

// Settings of the same names, unless a comment says otherwise.
struct DataSettings {
  Path data_path;                              // empty: none
  Path valid_data_path;                        // data for evaluation; empty: none
  std::optional<trainer::DataKind> data_kind;  // of both; none: their first lines decide
  bool shuffle = true;
  bool packing = true;  // let examples share sequences
  trainer::LongExamples long_examples = trainer::LongExamples::kRefuse;
  std::int32_t pad_token = 0;             // for examples that are tokens
  bool eod_mask_loss = false;             // no loss on the token after the end of a document
  bool reset_position_ids = false;        // positions count from 0 in every document
  bool reset_attention_mask = false;      // attention stays within a document
  std::optional<std::int32_t> eod_token;  // for documents that are tokens
  // Not a setting: a file of the tokenizer that came with the model; empty: there is none.
  Path tokenizer;

  // Whether anything restarts at the end of a document.
  [[nodiscard]] bool asks_for_document_ends() const {
    return eod_mask_loss || reset_position_ids || reset_attention_mask;
  }
};

// Errors: kUsage, all at once, reported by `reader`.
DataSettings ReadDataSettings(trainer::SettingsReader& reader);

// The file of a tokenizer among the model's side files in `assets`; empty if there is none. Errors:
// those of the storage.
Result<Path> FindTokenizer(Storage& storage, const Path& assets);

// Checks that the model reads text as bytes. Errors: kUsage (it has another vocabulary, or its own
// tokenizer).
Status CheckTakesBytes(const DataSettings& settings, std::int64_t vocab_size);

// Errors: kUsage (a token outside the vocabulary).
Status CheckTokensOf(const DataSettings& settings, std::int64_t vocab_size);

// The kind of the data in `path`. Errors: those of DetectKind.
Result<trainer::DataKind> KindOf(Storage& storage, const Path& path, const DataSettings& settings);

// Checks that every setting that differs from its default is used by one of `kinds`, which are the
// kinds of all data. Errors: kUsage, all at once.
Status CheckKindsUse(const DataSettings& settings, const std::vector<trainer::DataKind>& kinds);

// The sequences of `path` for a run with this configuration.
// Errors: kUsage (a setting needs eod_token, which is missing), those of DetectKind,
// CheckTakesBytes and OpenSource.
Result<std::shared_ptr<const trainer::SequenceSource>> OpenData(Storage& storage, const Path& path,
                                                                const DataSettings& settings,
                                                                const trainer::TrainConfig& config);

// What the user should know about the data; empty: nothing.
[[nodiscard]] std::string DataNotice(const Path& path, const trainer::SourceFacts& facts);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_DATA_SETTINGS_H_
