// How a quantised repository stores its weights, as its configuration says it.
#ifndef CKPT_CONVERTERS_QUANTISED_INTERNAL_STORAGE_SCHEME_H_
#define CKPT_CONVERTERS_QUANTISED_INTERNAL_STORAGE_SCHEME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "converters/quantised/internal/decoded_source.h"
#include "core/base/result.h"
#include "core/layout/value.h"
#include "core/tensor/dtype.h"

namespace ckpt::internal {

struct StorageScheme {
  std::string_view method;
  Coding coding = Coding::kFp8Blocks;
  std::string_view codes_suffix;   // of the key of a tensor of codes, behind the weight's
  std::string_view scales_suffix;  // of that of its scales
  DType codes_dtype = DType::kFloat8E4m3fn;
  std::vector<DType> scales_dtypes = {};  // any of these
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 1;
  std::vector<std::string> excluded = {};  // modules whose weights are stored as they are

  // Whether the weights of the module that holds `key` are stored as they are. Modules are named as
  // transformers compares them: from the start to the end of a part, with `*` for any text, or by
  // the end of their name.
  [[nodiscard]] bool Excludes(std::string_view key) const;
};

// Nothing: the weights are not quantised, or by a method that is not known here.
// Errors: kUnsupported (the method stores them in another form), kBadMetadata (values of the wrong
// kind).
Result<std::optional<StorageScheme>> ReadScheme(const layout::Configuration& config);

}  // namespace ckpt::internal

#endif  // CKPT_CONVERTERS_QUANTISED_INTERNAL_STORAGE_SCHEME_H_
