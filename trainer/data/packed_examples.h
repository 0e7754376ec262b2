// Examples packed into sequences: the samples of supervised fine-tuning.
//
// An example of n tokens takes n - 1 places: its last token is only a label. Labels and attention
// stay within one example, and its positions count from 0. So what is learned from an example does
// not depend on the examples that share its sequence.
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
  kTruncate,  // keeps the tokens that fit
};

struct PackOptions {
  std::int64_t seq_length = 0;
  std::int32_t pad_token = 0;  // fills the rest of a sequence, without labels
  bool pack = true;            // otherwise every example has its own sequence
  LongExamples long_examples = LongExamples::kRefuse;
};

// Which examples share a sequence is decided once, from their lengths (PackBestFit), for all
// epochs.
//
// REQUIRES: 0 < options.seq_length < 2³¹.
// Errors: kUsage (no example, or none with a label in its first seq_length places), kOutOfRange (an
// example is too long; names file and line).
Result<std::unique_ptr<SampleSet>> MakePackedExamples(std::shared_ptr<const JsonlFile> file,
                                                      const PackOptions& options);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_PACKED_EXAMPLES_H_
