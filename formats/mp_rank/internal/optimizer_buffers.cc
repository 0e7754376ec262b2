#include "formats/mp_rank/internal/optimizer_buffers.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/text_number.h"
#include "core/json/json_reader.h"
#include "core/tensor/shape.h"
#include "formats/megatron/buffer_layout.h"

namespace ckpt::mp_rank {
namespace {

using megatron::BufferLayout;
using megatron::InBuffer;
using torch_save::RankPart;
using torch_save::RebuiltTensor;
using torch_save::TorchSaveSource;

constexpr std::array<std::string_view, 3> kFields = {kExactValue, "exp_avg", "exp_avg_sq"};

// How many elements each bucket of each buffer has without room at its end.
constexpr std::string_view kBucketElems = "per_bucket_numel_unpadded";

// What a key of the file says: "0.(torch.bfloat16, torch.float32).exp_avg", with a number before it
// if there are several optimizers, and one behind it if buckets are stored one by one. Gradients
// had buffers of their own before parameters did: "0.torch.float32.exp_avg.2".
struct BufferKey {
  std::optional<std::size_t> optimizer;
  std::size_t buffer = 0;
  std::string_view dtypes;  // of its parameters and of their gradients
  std::string_view field;
  std::optional<std::size_t> bucket;
};

// Takes a number and the dot behind it off the front of `text`, or nothing.
std::optional<std::size_t> TakeNumberAndDot(std::string_view& text) {
  std::string_view rest = text;
  const std::optional<std::size_t> number = TakeNumber<std::size_t>(rest);
  if (!number || !TakePrefix(".", rest)) return std::nullopt;
  text = rest;
  return number;
}

std::optional<BufferKey> ParseKey(std::string_view key) {
  BufferKey parsed;
  const std::optional<std::size_t> first = TakeNumberAndDot(key);
  if (!first) return std::nullopt;
  parsed.buffer = *first;
  if (const std::optional<std::size_t> second = TakeNumberAndDot(key)) {
    parsed.optimizer = first;
    parsed.buffer = *second;
  }
  if (const std::size_t dot = key.rfind('.'); dot != std::string_view::npos) {
    parsed.bucket = ParseNumber<std::size_t>(key.substr(dot + 1));
    if (parsed.bucket) key = key.substr(0, dot);
  }
  const std::size_t dot = key.rfind('.');
  const bool has_dtypes = key.starts_with('(') || key.starts_with("torch.");
  if (!has_dtypes || dot == std::string_view::npos) return std::nullopt;
  parsed.dtypes = key.substr(0, dot);
  parsed.field = key.substr(dot + 1);
  const bool is_known = std::ranges::find(kFields, parsed.field) != kFields.end();
  return is_known ? std::optional(parsed) : std::nullopt;
}

struct Buffer {
  std::string dtypes;
  // Of each field its tensor, or one for each bucket, by number.
  std::map<std::string, std::map<std::size_t, RebuiltTensor>, std::less<>> fields;
  bool has_buckets = false;
  std::vector<std::int64_t> bucket_elems = {};
};
// By number.
using Buffers = std::map<std::size_t, Buffer>;

struct StoredBuffers {
  std::map<std::size_t, Buffers> of_optimizers;
  bool are_several = false;  // optimizers, even if the file has buffers of one alone
};

Result<StoredBuffers> CollectBuffers(const TorchSaveSource& file) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<RankPart> parts, file.RankParts());
  StoredBuffers stored;
  for (const RankPart& part : parts) {
    const std::optional<BufferKey> key = ParseKey(part.key);
    if (!key) {
      return Error(ErrorKind::kUnsupported,
                   "the distributed optimizer's buffers are in a form that is not read")
          .Tensor(part.key)
          .Expected("param, exp_avg and exp_avg_sq for each buffer");
    }
    stored.are_several = stored.are_several || key->optimizer.has_value();
    Buffer& buffer = stored.of_optimizers[key->optimizer.value_or(0)][key->buffer];
    buffer.dtypes = key->dtypes;
    buffer.has_buckets = buffer.has_buckets || key->bucket.has_value();
    auto& tensors = buffer.fields[std::string(key->field)];
    if (!tensors.emplace(key->bucket.value_or(0), part.local).second) {
      return Error(ErrorKind::kBadMetadata, "a buffer of the distributed optimizer is there twice")
          .Tensor(part.key);
    }
  }
  return stored;
}

// The buckets' sizes, which the file has by buffer and dtype.
Status ReadBucketElems(const TorchSaveSource& file, Buffers& buffers) {
  Result<std::string> outline = file.OutlineMember(kBucketElems);
  if (!outline.ok()) {
    return Error(ErrorKind::kUnsupported,
                 "the distributed optimizer's buckets do not say how many elements they have")
        .Expected(fmt::format("{}, of one optimizer", kBucketElems))
        .Hint("Megatron-Core since 0.7 stores buffers without buckets: load and save it once");
  }
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::Parse(*outline, kBucketElems));
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, json.root().Items());
  for (std::size_t b = 0; b < items.size(); ++b) {
    const auto buffer = buffers.find(b);
    if (buffer == buffers.end()) continue;
    CKPT_ASSIGN_OR_RETURN(const JsonCursor by_dtype, items[b].At("$dict"));
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> pairs, by_dtype.Items());
    if (pairs.size() != 1) continue;  // no size, which is found below
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> pair, pairs[0].Items());
    if (pair.size() != 2) continue;
    CKPT_ASSIGN_OR_RETURN(buffer->second.bucket_elems, pair[1].Int64Array());
  }
  return OkStatus();
}

// The parameters of one buffer, by their positions in the list.
struct BufferMembers {
  std::int64_t part = 0;
  DType dtype = DType::kFloat32;
  std::vector<std::size_t> parameters;
};

// Buffers of an optimizer in their order: for every part of the model, one for each dtype in the
// order in which parameters have them first.
std::vector<BufferMembers> MembersOfBuffers(std::span<const Parameter> parameters,
                                            bool of_experts) {
  std::vector<BufferMembers> buffers;
  std::map<std::pair<std::int64_t, DType>, std::size_t> positions;  // in `buffers`
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Parameter& parameter = parameters[p];
    if (parameter.is_expert != of_experts) continue;
    const DType dtype = parameter.weight.array.dtype;
    const auto [found, is_new] =
        positions.try_emplace(std::pair(parameter.part, dtype), buffers.size());
    if (is_new) buffers.push_back({.part = parameter.part, .dtype = dtype, .parameters = {}});
    buffers[found->second].parameters.push_back(p);
  }
  std::ranges::stable_sort(buffers, {}, &BufferMembers::part);
  return buffers;
}

// The stored tensors: for each field one of float32 numbers, or one for each bucket. Returns how
// many numbers each has.
Result<std::vector<std::int64_t>> CheckTensors(const Buffer& buffer, const BufferMembers& members) {
  const std::string expected = fmt::format("(torch.{}, ", DTypeName(members.dtype));
  if (buffer.dtypes.starts_with('(') && !buffer.dtypes.starts_with(expected)) {
    return Error(ErrorKind::kUnsupported,
                 "a buffer of the distributed optimizer belongs to parameters of another dtype")
        .Expected(fmt::format("{}…), of the parameters", expected))
        .Actual(buffer.dtypes);
  }
  const auto& tensors = buffer.fields.begin()->second;
  const bool is_whole = buffer.fields.size() == kFields.size() &&
                        std::ranges::all_of(buffer.fields, [&](const auto& field) {
                          return field.second.size() == tensors.size() &&
                                 field.second.rbegin()->first == tensors.size() - 1;
                        });
  if (!is_whole) {
    return Error(ErrorKind::kMissing, "a buffer of the distributed optimizer is not whole")
        .Expected("param, exp_avg and exp_avg_sq, each of every bucket")
        .Actual(fmt::format("{} of them", buffer.fields.size()));
  }
  std::vector<std::int64_t> elems;
  for (const auto& [bucket, first] : tensors) {
    for (const auto& [field, of_field] : buffer.fields) {
      const RebuiltTensor& tensor = of_field.at(bucket);
      const bool is_flat = tensor.shape.size() == 1 && tensor.shape == first.shape &&
                           tensor.array.dtype == DType::kFloat32 &&
                           tensor.array.strides == ContiguousStrides(tensor.shape);
      if (is_flat) continue;
      return Error(ErrorKind::kBadMetadata,
                   "a buffer of the distributed optimizer has another form")
          .Tensor(field)
          .Expected(fmt::format("float32 {}, without gaps", FormatDims(first.shape)))
          .Actual(fmt::format("{} {}", DTypeName(tensor.array.dtype), FormatDims(tensor.shape)));
    }
    elems.push_back(first.shape.front());
  }
  return elems;
}

// Where parameters lie in buckets, which may have room behind them.
Result<BufferLayout> FindInBuckets(std::span<const InBuffer> parameters, const Buffer& buffer,
                                   std::span<const std::int64_t> stored) {
  const bool fits = std::ranges::equal(buffer.bucket_elems, stored, std::less_equal<>());
  std::optional<BufferLayout> layout;
  if (fits) layout = megatron::LayOutBuckets(parameters, buffer.bucket_elems);
  if (layout) return *std::move(layout);
  return Error(ErrorKind::kUnsupported,
               "the distributed optimizer's buckets do not end where the model's parameters do")
      .Expected(fmt::format("buckets of {} numbers", fmt::join(buffer.bucket_elems, ", ")))
      .Actual(fmt::format("tensors of {}", fmt::join(stored, ", ")));
}

// Where the buffer's parameters lie in it.
Result<BufferLayout> FindLayout(const BufferMembers& members, std::span<const Parameter> parameters,
                                const Buffer& buffer, std::span<const std::int64_t> stored,
                                const Arguments& arguments, std::int64_t stage) {
  std::vector<InBuffer> in_buffer;
  std::int64_t sum = 0;
  for (const std::size_t p : members.parameters) {
    in_buffer.push_back({.elems = NumElements(parameters[p].weight.shape),
                         .has_own_bucket = parameters[p].is_shared});
    sum += in_buffer.back().elems;
  }
  if (buffer.has_buckets) return FindInBuckets(in_buffer, buffer, stored);
  const std::int64_t stored_elems = stored.front();
  // Only the first stage sends its buckets one by one, and of it the first part of the model.
  const bool has_buckets = stage == 0 && members.part == 0 && !arguments.divides_optimizer;
  const std::optional<std::int64_t> bucket_elems =
      has_buckets ? arguments.bucket_elems : std::nullopt;
  BufferLayout layout = megatron::LayOutBuffer(in_buffer, bucket_elems);
  // Without gaps the parameters fill the buffer, whatever its buckets are.
  const bool is_known = sum == stored_elems || !bucket_elems || arguments.knows_buckets;
  if (layout.elems == stored_elems && is_known) return layout;
  if (sum == stored_elems) {  // before parameters were aligned
    std::int64_t begin = 0;
    for (std::size_t i = in_buffer.size(); i-- > 0;) {
      layout.begins[i] = begin;
      begin += in_buffer[i].elems;
    }
    layout.elems = begin;
    return layout;
  }
  return Error(ErrorKind::kUnsupported,
               "the distributed optimizer's buffer has another size than the model's parameters "
               "take in it, so that nothing says where one lies")
      .Expected(fmt::format("{} numbers", layout.elems))
      .Actual(fmt::format("{}", stored_elems));
}

// The part of a buffer from `begin` on, as the parameter is shaped.
RebuiltTensor Slice(const RebuiltTensor& buffer, std::int64_t begin, const Dims& shape) {
  RebuiltTensor slice = buffer;
  slice.array.offset_bytes += static_cast<std::uint64_t>(begin) * ElementBytes(buffer.array.dtype);
  slice.array.strides = ContiguousStrides(shape);
  slice.shape = shape;
  return slice;
}

Status CutBuffers(const Buffers& stored, std::span<const Parameter> parameters, bool of_experts,
                  const Arguments& arguments, std::int64_t stage,
                  std::vector<ParameterState>& states) {
  const std::vector<BufferMembers> buffers = MembersOfBuffers(parameters, of_experts);
  const bool are_numbered = stored.empty() || stored.rbegin()->first == stored.size() - 1;
  if (buffers.size() != stored.size() || !are_numbered) {
    return Error(ErrorKind::kUnsupported,
                 "the distributed optimizer has other buffers than the model asks for")
        .Expected(fmt::format("{}, numbered from 0", buffers.size()))
        .Actual(fmt::format("{}", stored.size()));
  }
  for (const auto& [number, buffer] : stored) {
    const BufferMembers& members = buffers[number];
    CKPT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> elems, CheckTensors(buffer, members));
    CKPT_ASSIGN_OR_RETURN(const BufferLayout layout,
                          FindLayout(members, parameters, buffer, elems, arguments, stage));
    for (std::size_t i = 0; i < members.parameters.size(); ++i) {
      const std::size_t p = members.parameters[i];
      const std::size_t bucket = layout.bucket_of.empty() ? 0 : layout.bucket_of[i];
      for (const auto& [field, tensors] : buffer.fields) {
        states.push_back(
            {.parameter = p,
             .field = field,
             .local = Slice(tensors.at(bucket), layout.begins[i], parameters[p].weight.shape)});
      }
    }
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<ParameterState>> ReadBuffers(const TorchSaveSource& file,
                                                std::span<const Parameter> parameters,
                                                const Arguments& arguments, std::int64_t stage) {
  CKPT_ASSIGN_OR_RETURN(StoredBuffers stored, CollectBuffers(file));
  std::vector<ParameterState> states;
  if (stored.of_optimizers.empty()) return states;  // a stage without experts
  const std::size_t optimizers = HasExpertOptimizer(arguments) ? 2 : 1;
  const std::size_t last = stored.of_optimizers.rbegin()->first;
  if (stored.are_several != (optimizers == 2) || last >= optimizers) {
    return Error(ErrorKind::kUnsupported,
                 "the file has other optimizers than the arguments ask for")
        .Expected(fmt::format("{}", optimizers))
        .Actual(fmt::format("{}", stored.are_several ? last + 1 : 1));
  }
  for (auto& [optimizer, buffers] : stored.of_optimizers) {
    const bool has_buckets = std::ranges::any_of(
        buffers, [](const auto& numbered) { return numbered.second.has_buckets; });
    if (has_buckets) CKPT_RETURN_IF_ERROR(ReadBucketElems(file, buffers));
    CKPT_RETURN_IF_ERROR(CutBuffers(buffers, parameters, optimizer == 1, arguments, stage, states));
  }
  return states;
}

}  // namespace ckpt::mp_rank
