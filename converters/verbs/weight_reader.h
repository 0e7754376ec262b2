// WeightReader: rows of a model's tensors under any naming, in float32: what a trainer starts from.
#ifndef CKPT_CONVERTERS_VERBS_WEIGHT_READER_H_
#define CKPT_CONVERTERS_VERBS_WEIGHT_READER_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "core/exec/nest_reader.h"

namespace ckpt {

// What a rank that loads a run gives its readers.
inline constexpr std::uint64_t kLoadBudgetBytes = std::uint64_t{64} << 20;

// One thread; several readers of one model may be used at once.
class WeightReader {
 public:
  // `model` outlives it. Errors: those of ViewModel.
  static Result<WeightReader> Open(const ModelSource& model, const std::string& naming,
                                   const layout::Choices& choices, std::uint64_t budget_bytes);

  // Rows [begin, begin + rows) along the tensor's first dim, in C order. Reads no more of the
  // checkpoint than they need.
  //
  // Errors: kMissing (no such tensor), kOutOfRange (rows it does not have), kSizeMismatch (`out`
  // has another size), kUnsupported (no floating-point tensor), those of NestReader.
  Status ReadRows(std::string_view key, std::int64_t begin, std::int64_t rows,
                  std::span<float> out);

  // Null if the model has no such tensor.
  [[nodiscard]] const TargetTensor* Find(std::string_view key) const;
  [[nodiscard]] const ModelView& view() const { return view_; }

 private:
  WeightReader(const ModelSource& model, ModelView view, std::uint64_t budget_bytes);

  ModelView view_;
  std::map<std::string, std::size_t, std::less<>> positions_;
  NestReader reader_;
  std::size_t current_ = 0;  // position of the tensor that was read last
};

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_WEIGHT_READER_H_
