#include "formats/torch_save/torch_item.h"

#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "core/base/endian.h"
#include "formats/torch_save/internal/archive_records.h"
#include "formats/torch_save/internal/torch_dtype.h"
#include "formats/zip/writer.h"

namespace ckpt::torch_save {
namespace {

// The one pickle that torch writes for a plain tensor, memo entries included, so that our items
// equal torch's.
class TensorPickle {
 public:
  Bytes Build(DType dtype, DimsView shape) && {
    const std::string_view storage_class = StorageClassOf(dtype);
    const bool is_untyped = storage_class.empty();
    const std::int64_t num_elems = NumElements(shape);
    Append("\x80\x02", out_);
    Global("torch._utils", is_untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    Append("(", out_);
    // The persistent id: an untyped storage counts bytes, the others elements.
    Append("(", out_);
    Text("storage");
    if (is_untyped) {
      Global("torch.storage", "UntypedStorage");
    } else {
      Global("torch", storage_class);
    }
    Text("0");
    Text("cpu");
    Int(is_untyped ? num_elems * static_cast<std::int64_t>(ElementBytes(dtype)) : num_elems);
    Append("t", out_);
    Memoize();
    Append("Q", out_);
    Int(0);  // storage offset
    Tuple(shape);
    Tuple(ContiguousStrides(shape));
    Append("\x89", out_);  // requires_grad: False
    Global("collections", "OrderedDict");
    Append(")R", out_);
    Memoize();
    if (is_untyped) Global("torch", DTypeName(dtype));
    Append("t", out_);
    Memoize();
    Append("R", out_);
    Memoize();
    Append(".", out_);
    return std::move(out_);
  }

 private:
  void Memoize() {
    Append("q", out_);
    AppendLe<std::uint8_t>(next_memo_++, out_);
  }
  void Global(std::string_view module, std::string_view name) {
    Append("c", out_);
    Append(module, out_);
    Append("\n", out_);
    Append(name, out_);
    Append("\n", out_);
    Memoize();
  }
  void Text(std::string_view text) {
    Append("X", out_);
    AppendLe<std::uint32_t>(static_cast<std::uint32_t>(text.size()), out_);
    Append(text, out_);
    Memoize();
  }
  void Int(std::int64_t value) {
    CKPT_CHECK(value >= 0);
    if (value <= 0xFF) {
      Append("K", out_);
      AppendLe<std::uint8_t>(static_cast<std::uint8_t>(value), out_);
    } else if (value <= 0xFFFF) {
      Append("M", out_);
      AppendLe<std::uint16_t>(static_cast<std::uint16_t>(value), out_);
    } else if (value <= std::numeric_limits<std::int32_t>::max()) {
      Append("J", out_);
      AppendLe<std::int32_t>(static_cast<std::int32_t>(value), out_);
    } else {
      // LONG1: as few bytes as keep the sign bit clear.
      std::uint8_t size = 4;
      while (size < 8 && (value >> (8 * size - 1)) != 0) ++size;
      Append("\x8a", out_);
      AppendLe<std::uint8_t>(size, out_);
      for (std::uint8_t i = 0; i < size; ++i) {
        AppendLe<std::uint8_t>(static_cast<std::uint8_t>(value >> (8 * i)), out_);
      }
    }
  }
  void Tuple(DimsView values) {
    if (values.empty()) {
      Append(")", out_);  // the empty tuple is never memoised
      return;
    }
    constexpr std::string_view kShortTuple = "\x85\x86\x87";  // TUPLE1, TUPLE2, TUPLE3
    const bool is_short = values.size() <= kShortTuple.size();
    if (!is_short) Append("(", out_);
    for (const std::int64_t value : values) Int(value);
    Append(is_short ? kShortTuple.substr(values.size() - 1, 1) : "t", out_);
    Memoize();
  }

  Bytes out_;
  std::uint8_t next_memo_ = 0;
};

}  // namespace

Bytes ObjectItem(ByteSpan pickle, std::span<const Bytes> storages) {
  zip::Writer zip;
  AddLeadingRecords(pickle, zip);
  for (std::size_t i = 0; i < storages.size(); ++i) zip.Add(StorageRecord(i), storages[i]);
  AddTrailingRecords(zip);
  return std::move(zip).Finish().front().bytes;
}

void WriteTensor(std::int64_t number, DType dtype, DimsView shape, pickle::PickleWriter& pickle) {
  const std::string_view storage_class = StorageClassOf(dtype);
  const bool is_untyped = storage_class.empty();
  const auto count =
      is_untyped ? static_cast<std::int64_t>(NumBytes(shape, dtype)) : NumElements(shape);
  pickle.Global("torch._utils", is_untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  pickle.BeginTuple();
  // The persistent id: an untyped storage counts bytes, the others elements.
  pickle.BeginTuple().SharedText("storage");
  if (is_untyped) {
    pickle.Global("torch.storage", "UntypedStorage");
  } else {
    pickle.Global("torch", storage_class);
  }
  pickle.Text(std::to_string(number)).SharedText("cpu").Int(count).EndTuple().PersistentId();
  pickle.Int(0).IntTuple(shape).IntTuple(ContiguousStrides(shape)).Bool(false);
  pickle.Global("collections", "OrderedDict").EmptyTuple().Reduce();
  if (is_untyped) pickle.Global("torch", DTypeName(dtype));
  pickle.EndTuple().Reduce();
}

TensorItem::TensorItem(DType dtype, DimsView shape)
    : pickle_(TensorPickle().Build(dtype, shape)), payload_bytes_(NumBytes(shape, dtype)) {
  std::vector<zip::Part> parts = FrameStorages(pickle_, {{.size_bytes = payload_bytes_}}).parts;
  head_ = std::move(parts.front().bytes);
  tail_bytes_ = parts.back().bytes.size();
}

Bytes TensorItem::Tail(std::uint32_t payload_crc32) const {
  const std::vector<ForeignStorage> storages = {
      {.size_bytes = payload_bytes_, .crc32 = payload_crc32}};
  return std::move(FrameStorages(pickle_, storages).parts.back().bytes);
}

}  // namespace ckpt::torch_save
