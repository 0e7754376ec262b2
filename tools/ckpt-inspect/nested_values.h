// Writes elements as nested arrays of text while they are being read.
#ifndef CKPT_TOOLS_CKPT_INSPECT_NESTED_VALUES_H_
#define CKPT_TOOLS_CKPT_INSPECT_NESTED_VALUES_H_

#include <cstdint>
#include <string>

#include "core/base/bytes.h"
#include "core/base/status.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "tools/cli/text_output.h"

namespace ckpt::inspect {

enum class NestedStyle : std::uint8_t {
  kJson,    // every value, on one line
  kPeople,  // one row per line; long dims show only their first and last three entries
};

// Errors: kResource: the shape has no elements, but too many rows to print.
Status CheckPrintable(DimsView dims);

// Nests elements of `dims`, which arrive in C order. For one thread.
class NestedValues {
 public:
  // REQUIRES: `out` outlives this; CheckPrintable(dims).
  NestedValues(DType dtype, Dims dims, NestedStyle style, cli::TextOutput& out);

  // Adds whole elements, which follow those of the last call.
  void Add(ByteSpan elements);
  // REQUIRES: exactly as many elements were added as `dims` have.
  void Finish();

 private:
  void AddOne(const std::byte* element);
  [[nodiscard]] std::size_t FirstHiddenDim() const;
  [[nodiscard]] std::size_t NumTrailingZeros() const;
  void Separate(std::size_t dim);
  void Step();
  void AppendEmpty(std::size_t dim);

  DType dtype_;
  Dims dims_;
  NestedStyle style_;
  cli::TextOutput& out_;
  bool is_abridged_;
  Dims index_;  // of the next element
  std::string text_;
};

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_NESTED_VALUES_H_
