// Examples packed into sequences: the samples of supervised fine-tuning.
//
// An example of n tokens takes n - 1 places: its last token is a label only. Neither labels nor attention cross from one
// example to the next, and each one's positions count from 0: what is learned from an example does not depend on what it
// shares its sequence with.
#ifndef CKPT_TRAINER_DATA_PACKED_EXAMPLES_H_
#define CKPT_TRAINER_DATA_PACKED_EXAMPLES_H_

#include <cstdint>
#include <memory>

#include "core/base/result.h"
#include "trainer/data/jsonl_file.h"
#include "trainer/data/sample_set.h"

namespace ckpt::trainer {

enum class LongExamples : std::uint8_t {
  kRefuse,    // an error
  kTruncate,  // the tokens that fit are kept
};

struct PackOptions {
  std::int64_t seq_length = 0;
  std::int32_t pad_token = 0;  // fills sequences up, without labels
  bool pack = true;            // else every example has a sequence of its own
  LongExamples long_examples = LongExamples::kRefuse;
};

// Which examples share a sequence is decided once, by their lengths (PackBestFit), and is the same for all epochs.
//
// REQUIRES: 0 < options.seq_length < 2³¹.
// Errors: kUsage (no example; none with a label in its first seq_length places), kOutOfRange (an example that is longer, by file and line).
Result<std::unique_ptr<SampleSet>> MakePackedExamples(std::shared_ptr<const JsonlFile> file,
                                                      const PackOptions& options);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_PACKED_EXAMPLES_H_
