// Documents joined end to end and cut into windows: the samples of pretraining.
//
// The stream is cut every seq_length tokens. A window reads one token more as its last label, which
// is also the first token of the next window. A rest that does not fill a window is dropped. For
// the same order of documents, these are the samples of Megatron's GPTDataset.
//
// A window may contain the end of a document. By default, as in Megatron, attention and positions
// continue across it.
#ifndef CKPT_TRAINER_DATA_TOKEN_WINDOWS_H_
#define CKPT_TRAINER_DATA_TOKEN_WINDOWS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/result.h"
#include "trainer/data/document_set.h"
#include "trainer/data/sample_set.h"

namespace ckpt::trainer {

// The token that ends documents, and what restarts after it. These are Megatron's settings, off by
// default as there.
struct DocumentEnds {
  std::int32_t token = 0;
  bool mask_loss = false;        // eod_mask_loss: nothing is learned where the token is the input
  bool reset_positions = false;  // reset_position_ids: positions count from 0 after the token
  bool reset_attention = false;  // reset_attention_mask: tokens after it see nothing before them
};

struct WindowOptions {
  std::int64_t seq_length = 0;
  // Draws the documents' order in the stream once from the seed, for all epochs. Otherwise it is
  // the order of the file.
  bool shuffle_documents = true;
  std::uint64_t seed = 1234;
  std::optional<DocumentEnds> ends = {};
};

// Cost: one pass over the documents' lengths; keeps one number per 64 documents.
// REQUIRES: options.seq_length > 0.
// Errors: kUsage (the documents do not fill one window).
Result<std::unique_ptr<SampleSet>> MakeTokenWindows(std::shared_ptr<const DocumentSet> documents,
                                                    const WindowOptions& options);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_TOKEN_WINDOWS_H_
