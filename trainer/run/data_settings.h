// The data of a run, as its settings name it.
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

// Settings of the same names where nothing else is said.
struct DataSettings {
  Path data_path;                              // empty: none
  Path valid_data_path;                        // what is evaluated on; empty: none
  std::optional<trainer::DataKind> data_kind;  // of both; none: what their first lines tell
  bool shuffle = true;
  bool packing = true;  // examples share sequences
  trainer::LongExamples long_examples = trainer::LongExamples::kRefuse;
  std::int32_t pad_token = 0;             // of examples that are tokens
  bool eod_mask_loss = false;             // no loss where a document has ended
  bool reset_position_ids = false;        // positions count from 0 in every document
  bool reset_attention_mask = false;      // attention stays within a document
  std::optional<std::int32_t> eod_token;  // of documents that are tokens
  // No setting: a file of the tokenizer that the model came with; empty: it came with none.
  Path tokenizer;

  // Whether anything starts anew where a document ends.
  [[nodiscard]] bool asks_for_document_ends() const {
    return eod_mask_loss || reset_position_ids || reset_attention_mask;
  }
};

// Errors: kUsage, all at once, by way of `reader`.
DataSettings ReadDataSettings(trainer::SettingsReader& reader);

// The file among the model's side files in `assets` that says it has a tokenizer; empty: there is none. Errors: those of the
// storage.
Result<Path> FindTokenizer(Storage& storage, const Path& assets);

// Whether text means something to the model as bytes. Errors: kUsage (it has another vocabulary, or a tokenizer of its own).
Status CheckTakesBytes(const DataSettings& settings, std::int64_t vocab_size);

// Errors: kUsage (a token outside the vocabulary).
Status CheckTokensOf(const DataSettings& settings, std::int64_t vocab_size);

// What `path` holds. Errors: those of DetectKind.
Result<trainer::DataKind> KindOf(Storage& storage, const Path& path, const DataSettings& settings);

// Whether every setting that is not what stands in for its absence is read for one of `kinds`, which are all there are.
// Errors: kUsage, all at once.
Status CheckKindsUse(const DataSettings& settings, const std::vector<trainer::DataKind>& kinds);

// The sequences of `path`, as a run of this configuration reads them.
// Errors: kUsage (a setting that needs eod_token without it), those of DetectKind, CheckTakesBytes and OpenSource.
Result<std::shared_ptr<const trainer::SequenceSource>> OpenData(Storage& storage, const Path& path,
                                                                const DataSettings& settings,
                                                                const trainer::TrainConfig& config);

// What a reader of the data should know of them; empty: nothing.
[[nodiscard]] std::string DataNotice(const Path& path, const trainer::SourceFacts& facts);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_DATA_SETTINGS_H_
