// Documents laid end to end and cut into windows: the samples of pretraining.
//
// The stream is cut every seq_length tokens; a window reads one token more, its last label, which is the first token of
// the next window. What is left at the end, and would not fill a window, is dropped. These are the samples of Megatron's
// GPTDataset for the same order of documents.
//
// Windows run over the ends of documents: neither attention nor positions start anew there. `mask_loss_after` takes the
// one label that lies across such an end out of the loss.
#ifndef CKPT_TRAINER_DATA_TOKEN_WINDOWS_H_
#define CKPT_TRAINER_DATA_TOKEN_WINDOWS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/result.h"
#include "trainer/data/document_set.h"
#include "trainer/data/sample_set.h"

namespace ckpt::trainer {

struct WindowOptions {
  std::int64_t seq_length = 0;
  // The documents' order in the stream is drawn once from the seed, the same for all epochs; else it is theirs.
  bool shuffle_documents = true;
  std::uint64_t seed = 1234;
  // Where this token is the input, nothing is learned (`eod_mask_loss` with the end-of-document token).
  std::optional<std::int32_t> mask_loss_after = {};
};

// Cost: one pass over the documents' lengths; keeps a number for every 64 documents.
// REQUIRES: options.seq_length > 0.
// Errors: kUsage (the documents do not fill one window).
Result<std::unique_ptr<SampleSet>> MakeTokenWindows(std::shared_ptr<const DocumentSet> documents,
                                                    const WindowOptions& options);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_TOKEN_WINDOWS_H_
