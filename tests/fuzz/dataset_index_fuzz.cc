// Any bytes as the index of a dataset: what is accepted lies within the files.

#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "trainer/data/internal/dataset_index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint64_t kBinBytes = 64;
  const auto index =
      ckpt::trainer::DatasetIndex::Parse(std::as_bytes(std::span(data, size)), kBinBytes, "fuzz");
  if (!index.ok()) return 0;
  const std::uint64_t token_bytes = ckpt::trainer::TokenBytes(index->type());
  for (std::int64_t d = 0; d < index->num_documents(); ++d) {
    CKPT_CHECK(index->FirstSequence(d) >= 0 &&
               index->FirstSequence(d) <= index->FirstSequence(d + 1));
  }
  CKPT_CHECK(index->FirstSequence(index->num_documents()) == index->num_sequences());
  std::int64_t num_tokens = 0;
  for (std::int64_t s = 0; s < index->num_sequences(); ++s) {
    const auto length = static_cast<std::uint64_t>(index->SequenceLength(s));
    CKPT_CHECK(ckpt::RangeFits(index->SequenceOffset(s), length * token_bytes, kBinBytes));
    num_tokens += index->SequenceLength(s);
  }
  CKPT_CHECK(num_tokens == index->num_tokens());
  return 0;
}
