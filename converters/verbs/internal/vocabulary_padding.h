// Rows that a training run added to the vocabulary.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_VOCABULARY_PADDING_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_VOCABULARY_PADDING_H_

#include <cstdint>
#include <vector>

#include "converters/verbs/model_source.h"
#include "core/base/result.h"

namespace ckpt {

// The rows that pad the vocabulary in what the source stores. One entry a tensor, with their size.
// Errors: those of ViewModel.
Result<std::vector<LeftOutEntry>> FindPadding(const ModelSource& model);

// Elements that the source's layout takes for zeros, padding that is, and that are not: a
// conversion leaves them out. One entry a tensor, with the size of its padding.
//
// Reads the padding alone. Errors: those of reading it.
Result<std::vector<LeftOutEntry>> FindUsedPadding(const ModelSource& model,
                                                  std::uint64_t memory_budget_bytes);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_VOCABULARY_PADDING_H_
