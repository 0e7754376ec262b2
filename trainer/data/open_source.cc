#include "trainer/data/open_source.h"

#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "trainer/data/byte_tokenizer.h"
#include "trainer/data/epoch_source.h"
#include "trainer/data/internal/indexed_dataset.h"
#include "trainer/data/jsonl_file.h"

namespace ckpt::trainer {
namespace {

Status CheckSize(std::string_view name, std::int64_t value) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (value > 0 && value <= kMost) return OkStatus();
  return Error(ErrorKind::kUsage, fmt::format("{} must be positive and fit into 31 bits", name))
      .Actual(fmt::format("{}", value));
}

Result<std::unique_ptr<SampleSet>> OpenWindows(std::shared_ptr<const DocumentSet> documents,
                                               const DataConfig& config) {
  return MakeTokenWindows(std::move(documents), {.seq_length = config.seq_length,
                                                 .shuffle_documents = config.shuffle,
                                                 .seed = config.seed,
                                                 .ends = config.ends});
}

Result<std::unique_ptr<SampleSet>> OpenDocuments(Storage& storage, const DataConfig& config,
                                                 ExampleKind kind) {
  CKPT_ASSIGN_OR_RETURN(
      std::shared_ptr<const DocumentSet> documents,
      JsonlFile::Open(storage, config.path,
                      {.kind = kind, .vocab_size = config.vocab_size, .whole_documents = true}));
  return OpenWindows(std::move(documents), config);
}

Result<std::unique_ptr<SampleSet>> OpenExamples(Storage& storage, const DataConfig& config,
                                                ExampleKind kind) {
  const std::int32_t pad = kind == ExampleKind::kTokens ? config.pad_token : kBytePad;
  CKPT_ASSIGN_OR_RETURN(
      std::shared_ptr<const JsonlFile> file,
      JsonlFile::Open(storage, config.path, {.kind = kind, .vocab_size = config.vocab_size}));
  if (pad < 0 || pad >= config.vocab_size) {
    return Error(ErrorKind::kUsage, "pad_token lies outside the vocabulary")
        .Expected(fmt::format("[0, {})", config.vocab_size))
        .Actual(fmt::format("{}", pad));
  }
  return MakePackedExamples(std::move(file), {.seq_length = config.seq_length,
                                              .pad_token = pad,
                                              .pack = config.pack,
                                              .long_examples = config.long_examples});
}

Result<std::unique_ptr<SampleSet>> OpenSamples(Storage& storage, const DataConfig& config) {
  switch (config.kind) {
    case DataKind::kIndexed: {
      CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const DocumentSet> documents,
                            IndexedDataset::Open(storage, config.path, config.vocab_size));
      return OpenWindows(std::move(documents), config);
    }
    case DataKind::kText:
      return OpenDocuments(storage, config, ExampleKind::kText);
    case DataKind::kTokenDocuments:
      return OpenDocuments(storage, config, ExampleKind::kTokens);
    case DataKind::kTokenExamples:
      return OpenExamples(storage, config, ExampleKind::kTokens);
    case DataKind::kPrompts:
      return OpenExamples(storage, config, ExampleKind::kPrompt);
    case DataKind::kMessages:
      return OpenExamples(storage, config, ExampleKind::kMessages);
  }
  CKPT_CHECK(false);
}

}  // namespace

Result<std::unique_ptr<SequenceSource>> OpenSource(Storage& storage, const DataConfig& config) {
  CKPT_RETURN_IF_ERROR(CheckSize("seq_length", config.seq_length));
  CKPT_RETURN_IF_ERROR(CheckSize("vocab_size", config.vocab_size));
  Result<std::unique_ptr<SampleSet>> samples = OpenSamples(storage, config);
  if (!samples.ok()) return std::move(samples).status().File(config.path.string());
  return MakeEpochSource(std::move(samples).value(),
                         {.seed = config.seed, .shuffle = config.shuffle});
}

}  // namespace ckpt::trainer
