#include "tools/ckpt-inspect/nested_values.h"

#include <algorithm>
#include <utility>

#include "tools/ckpt-inspect/element.h"

namespace ckpt::inspect {
namespace {

constexpr std::int64_t kEdgeEntries = 3;
constexpr std::int64_t kMaxUnabridgedElements = 1000;
constexpr std::int64_t kMaxEmptyRows = 1'000'000;
constexpr std::size_t kFlushBytes = 1 << 16;

}  // namespace

Status CheckPrintable(DimsView dims) {
  const auto zero = std::find(dims.begin(), dims.end(), 0);
  if (zero == dims.end()) return OkStatus();
  const Result<std::int64_t> num_rows = CountElements(DimsView(dims.begin(), zero));
  if (num_rows.ok() && *num_rows <= kMaxEmptyRows) return OkStatus();
  return Error(ErrorKind::kResource, "too many empty rows to print").Actual(FormatDims(dims));
}

NestedValues::NestedValues(DType dtype, Dims dims, NestedStyle style, cli::TextOutput& out)
    : dtype_(dtype),
      dims_(std::move(dims)),
      style_(style),
      out_(out),
      is_abridged_(style == NestedStyle::kPeople && NumElements(dims_) > kMaxUnabridgedElements),
      index_(dims_.size(), 0) {}

void NestedValues::Add(ByteSpan elements) {
  const std::uint64_t step = ElementBytes(dtype_);
  for (std::uint64_t at = 0; at < elements.size(); at += step) {
    AddOne(elements.data() + at);
    Step();
    if (text_.size() < kFlushBytes) continue;
    out_.Write(text_);
    text_.clear();
  }
}

void NestedValues::AddOne(const std::byte* element) {
  const std::size_t ndim = dims_.size();
  const std::size_t num_opened = NumTrailingZeros();
  if (const std::size_t hidden = FirstHiddenDim(); hidden < ndim) {
    // One mark stands for all hidden entries of a row.
    const bool is_first_hidden = index_[hidden] == kEdgeEntries && num_opened == ndim - 1 - hidden;
    if (!is_first_hidden) return;
    Separate(hidden);
    text_ += "...";
    return;
  }
  if (num_opened < ndim) Separate(ndim - 1 - num_opened);
  text_.append(num_opened, '[');
  AppendElement(dtype_, element, text_);
  for (std::size_t dim = ndim; dim > 0 && index_[dim - 1] == dims_[dim - 1] - 1; --dim) {
    text_ += ']';
  }
}

std::size_t NestedValues::FirstHiddenDim() const {
  if (!is_abridged_) return dims_.size();
  std::size_t dim = 0;
  while (dim < dims_.size() &&
         (index_[dim] < kEdgeEntries || index_[dim] >= dims_[dim] - kEdgeEntries)) {
    ++dim;
  }
  return dim;
}

std::size_t NestedValues::NumTrailingZeros() const {
  std::size_t count = 0;
  while (count < index_.size() && index_[index_.size() - 1 - count] == 0) ++count;
  return count;
}

// Writes what separates an entry of `dim` from the one before it.
void NestedValues::Separate(std::size_t dim) {
  const bool starts_row = style_ == NestedStyle::kPeople && dim + 1 < dims_.size();
  text_ += starts_row ? ",\n" + std::string(dim + 1, ' ') : ", ";
}

void NestedValues::Step() {
  for (std::size_t dim = dims_.size(); dim-- > 0;) {
    if (++index_[dim] < dims_[dim]) return;
    index_[dim] = 0;
  }
}

void NestedValues::AppendEmpty(std::size_t dim) {
  text_ += '[';
  for (std::int64_t i = 0; i < dims_[dim]; ++i) {
    if (i > 0) text_ += ", ";
    AppendEmpty(dim + 1);
  }
  text_ += ']';
}

void NestedValues::Finish() {
  if (std::find(dims_.begin(), dims_.end(), 0) != dims_.end()) AppendEmpty(0);
  out_.Write(text_);
  text_.clear();
}

}  // namespace ckpt::inspect
