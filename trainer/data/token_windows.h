// Documents laid end to end and cut into windows: the samples of pretraining.
//
// The stream is cut every seq_length tokens; a window reads one token more, its last label, which is the first token of
// the next window. What is left at the end, and would not fill a window, is dropped. These are the samples of Megatron's
// GPTDataset for the same order of documents.
//
// Windows run over the ends of documents: by default, as Megatron's, neither attention nor positions start anew there.
#ifndef CKPT_TRAINER_DATA_TOKEN_WINDOWS_H_
#define CKPT_TRAINER_DATA_TOKEN_WINDOWS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/result.h"
#include "trainer/data/document_set.h"
#include "trainer/data/sample_set.h"

namespace ckpt::trainer {

// The token that ends documents, and what starts anew behind it. Megatron's settings, all off by default there too.
struct DocumentEnds {
  std::int32_t token = 0;
  bool mask_loss = false;        // eod_mask_loss: nothing is learned where it is the input
  bool reset_positions = false;  // reset_position_ids: positions count from 0 behind it
  bool reset_attention = false;  // reset_attention_mask: tokens behind it see nothing before it
};

struct WindowOptions {
  std::int64_t seq_length = 0;
  // The documents' order in the stream is drawn once from the seed, the same for all epochs; else it is theirs.
  bool shuffle_documents = true;
  std::uint64_t seed = 1234;
  std::optional<DocumentEnds> ends = {};
};

// Cost: one pass over the documents' lengths; keeps a number for every 64 documents.
// REQUIRES: options.seq_length > 0.
// Errors: kUsage (the documents do not fill one window).
Result<std::unique_ptr<SampleSet>> MakeTokenWindows(std::shared_ptr<const DocumentSet> documents,
                                                    const WindowOptions& options);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_TOKEN_WINDOWS_H_
