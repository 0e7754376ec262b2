#include "formats/torch_dist/internal/unpacked_buffers.h"

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/checkpoint/copy_index.h"
#include "core/checkpoint/read.h"
#include "core/checkpoint/view_source.h"
#include "core/tensor/cast.h"
#include "core/tensor/shape.h"
#include "formats/torch_dist/internal/buffer_search.h"
#include "formats/torch_dist/internal/flat_range.h"
#include "formats/torch_dist/internal/local_parameter.h"
#include "formats/torch_dist/internal/run_keys.h"

namespace ckpt::torch_dist {
namespace {

// Every parameter begins at a multiple of it in its bucket.
constexpr std::int64_t kAlignmentElems = 64;

// Memory for items that are decoded.
constexpr std::uint64_t kItemBytes = std::uint64_t{64} << 20;

// One buffer of a group of ranks.
struct BufferId {
  std::string optimizer;  // "chained_1." of one of several optimizers
  std::int64_t group = 0;
  std::int64_t buffer = 0;
  std::string dtypes;  // of its parameters and of their gradients

  friend auto operator<=>(const BufferId&, const BufferId&) = default;
};
// A tensor for each field: "param", "exp_avg", ….
using Bucket = std::map<std::string, const GlobalTensor*, std::less<>>;
using Buffers = std::map<BufferId, std::map<std::int64_t, Bucket>>;

// Takes "gbuf_idx_" and a number from the front, up to a dot.
bool TakeNumber(std::string_view name, std::string_view& text, std::int64_t& number) {
  if (!text.starts_with(name)) return false;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + name.size(), end, number);
  if (error != std::errc() || rest == end || *rest != '.' || number < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(rest + 1 - text.data()));
  return true;
}

// Adds the tensor if its key is that of a bucket.
void AddBucket(const GlobalTensor& tensor, Buffers& buffers) {
  constexpr std::string_view kDtypes = "dtype_(";
  std::string_view text = WithoutNumber(tensor.key);
  BufferId id;
  id.optimizer = tensor.key.substr(0, tensor.key.size() - text.size());
  if (!text.starts_with(kOptimizerBuffers)) return;
  text.remove_prefix(kOptimizerBuffers.size());
  std::int64_t bucket = 0;
  const bool begins = TakeNumber("dp_group_idx_", text, id.group) &&
                      TakeNumber("gbuf_idx_", text, id.buffer) && text.starts_with(kDtypes);
  const std::size_t close = text.find(").");
  if (!begins || close == std::string_view::npos) return;
  id.dtypes = text.substr(kDtypes.size(), close - kDtypes.size());
  text.remove_prefix(close + 2);
  if (!TakeNumber("bucket_idx_", text, bucket)) return;
  buffers[id][bucket][std::string(text)] = &tensor;
}

// The dtype of the parameters: the first of "torch.bfloat16, torch.float32".
std::optional<DType> ParameterDType(std::string_view dtypes) {
  constexpr std::string_view kTorch = "torch.";
  if (!dtypes.starts_with(kTorch)) return std::nullopt;
  return ParseDType(dtypes.substr(kTorch.size(), dtypes.find(',') - kTorch.size()));
}

std::int64_t Aligned(std::int64_t elem) {
  return (elem + kAlignmentElems - 1) / kAlignmentElems * kAlignmentElems;
}

// Elements of a parameter by which it is told from others: at its begin, its middle and its end.
std::vector<std::pair<std::int64_t, std::int64_t>> SampledRanges(std::int64_t elems) {
  constexpr std::int64_t kRange = 32;
  if (elems <= 3 * kRange) return {{0, elems}};
  return {{0, kRange}, {elems / 2, elems / 2 + kRange}, {elems - kRange, elems}};
}

class SampleReader {
 public:
  explicit SampleReader(const CheckpointSource& source)
      : gatherer_(Gatherer::ScratchBytes(0)), chunks_(source, kItemBytes) {}

  // Of a weight, in the order of the rank's memory.
  Result<Bytes> OfWeight(const LocalParameter& parameter) {
    Bytes sample;
    TensorReader reader(*parameter.weight, gatherer_, chunks_);
    for (const auto& [begin, end] : SampledRanges(parameter.elems)) {
      std::int64_t first = 0;  // of a box
      for (const Box& box : parameter.boxes) {
        const std::int64_t behind = first + NumElements(box.sizes);
        const std::int64_t from = std::clamp(begin, first, behind);
        const std::int64_t to = std::clamp(end, first, behind);
        for (FlatBox& cut : CutFlatRange(box.sizes, from - first, to - first)) {
          for (std::size_t d = 0; d < box.sizes.size(); ++d) cut.box.offsets[d] += box.offsets[d];
          CKPT_RETURN_IF_ERROR(Append(reader, cut.box, sample));
        }
        first = behind;
      }
    }
    return sample;
  }

  // Of exact values that begin at an element of a bucket, rounded to `dtype`.
  Result<Bytes> OfBucket(const GlobalTensor& bucket, std::int64_t first, std::int64_t elems,
                         DType dtype) {
    Bytes sample;
    TensorReader reader(bucket, gatherer_, chunks_);
    for (const auto& [begin, end] : SampledRanges(elems)) {
      const Box range = {.offsets = {first + begin}, .sizes = {end - begin}};
      CKPT_RETURN_IF_ERROR(Append(reader, range, sample));
    }
    if (bucket.dtype == dtype) return sample;
    Bytes rounded(sample.size() / ElementBytes(bucket.dtype) * ElementBytes(dtype));
    CastElements(bucket.dtype, sample, dtype, rounded);
    return rounded;
  }

 private:
  static Status Append(TensorReader& reader, const Box& box, Bytes& sample) {
    const std::size_t size = sample.size();
    sample.resize(size + static_cast<std::uint64_t>(NumElements(box.sizes)) *
                             ElementBytes(reader.tensor().dtype));
    return reader.Read(box, MutableByteSpan(sample).subspan(size));
  }

  Gatherer gatherer_;
  LocatedChunks chunks_;
};

// Parameters of one dtype by their size and their sample.
class Fingerprints {
 public:
  static Result<Fingerprints> Take(std::span<const LocalParameter> parameters, DType dtype,
                                   SampleReader& reader) {
    Fingerprints prints;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (parameters[p].weight->dtype != dtype || parameters[p].elems == 0) continue;
      CKPT_ASSIGN_OR_RETURN(const Bytes sample, reader.OfWeight(parameters[p]));
      prints.by_size_[parameters[p].elems][std::string(AsText(sample))].push_back(p);
    }
    return prints;
  }

  // Of so many elements; null: there is none.
  using OfSize = std::map<std::string, std::vector<std::size_t>, std::less<>>;
  [[nodiscard]] const std::map<std::int64_t, OfSize>& by_size() const { return by_size_; }

 private:
  std::map<std::int64_t, OfSize> by_size_;
};

// Where chunks of a bucket begin and end. A parameter ends at one of them, if there are several.
std::set<std::int64_t> Borders(const CheckpointIndex& index, const GlobalTensor& bucket) {
  std::set<std::int64_t> borders = {bucket.shape[0]};
  for (const Chunk& chunk : index.chunks(bucket)) {
    borders.insert(index.offsets(chunk)[0]);
    borders.insert(index.offsets(chunk)[0] + index.sizes(chunk)[0]);
  }
  return borders;
}

// The parameters whose weights what begins at an element rounds to.
Result<std::vector<BufferStep>> StepsFrom(const BufferPosition& begin, const GlobalTensor& bucket,
                                          const std::set<std::int64_t>& borders, DType dtype,
                                          const Fingerprints& prints, SampleReader& reader) {
  const bool shows_ends = borders.size() > 2;
  const std::int64_t bucket_elems = bucket.shape[0];
  std::vector<BufferStep> steps;
  for (const auto& [elems, of_size] : prints.by_size()) {
    if (elems > bucket_elems - begin.elem) break;
    const std::int64_t end = begin.elem + elems;
    if (shows_ends && !borders.contains(end)) continue;
    CKPT_ASSIGN_OR_RETURN(const Bytes sample, reader.OfBucket(bucket, begin.elem, elems, dtype));
    const auto equal = of_size.find(AsText(sample));
    if (equal == of_size.end()) continue;
    const bool is_last = end == bucket_elems;
    const BufferPosition next =
        is_last ? BufferPosition{begin.bucket + 1, 0} : BufferPosition{begin.bucket, Aligned(end)};
    for (const std::size_t parameter : equal->second) {
      steps.push_back({.parameter = parameter, .next = next});
    }
  }
  return steps;
}

// A part of a tensor of the view, and where it lies in one of a bucket.
struct UnpackedSlice {
  const GlobalTensor* bucket = nullptr;
  const Chunk* chunk = nullptr;
  std::int64_t first_elem = 0;  // of the chunk
  Dims strides;                 // of the parameter that it is a part of
};
struct UnpackedTensor {
  const GlobalTensor* weight = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<Box> boxes;
  std::vector<UnpackedSlice> slices;  // parallel
  std::int64_t elems = 0;
};

class UnpackedSource final : public ViewSource {
 public:
  explicit UnpackedSource(std::shared_ptr<const CheckpointSource> packed)
      : ViewSource(std::move(packed)),
        parameters_(LocalParameters(below().index())),
        reader_(below()) {}

  // `buffers`: of the source.
  Status Unpack(const Buffers& buffers) {
    for (const auto& [id, buckets] : buffers) {
      const GlobalTensor& any = *buckets.begin()->second.begin()->second;
      if (Status status = UnpackBuffer(id, buckets); !status.ok()) {
        return std::move(status).Tensor(any.key);
      }
    }
    CKPT_RETURN_IF_ERROR(CheckWhole());
    return BuildIndex(buffers);
  }

  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override {
    const auto unpacked = tensors_.find(tensor.key);
    if (unpacked == tensors_.end()) return ViewSource::Locate(tensor, chunk);
    const UnpackedSlice& slice = unpacked->second.slices[PositionOf(tensor, chunk)];
    CKPT_ASSIGN_OR_RETURN(StoredArray row, below().Locate(*slice.bucket, *slice.chunk));
    return InRow(std::move(row), slice.first_elem, slice.strides, index().sizes(chunk));
  }

 private:
  Status UnpackBuffer(const BufferId& id, const std::map<std::int64_t, Bucket>& buckets) {
    const std::optional<DType> dtype = ParameterDType(id.dtypes);
    if (!dtype || !IsCastable(*dtype)) {
      return Error(ErrorKind::kUnsupported, "a buffer of weights whose dtype is not converted")
          .Expected("float32, bfloat16 or float16")
          .Actual(id.dtypes);
    }
    CKPT_ASSIGN_OR_RETURN(const std::vector<const Bucket*> rows, CheckBuckets(buckets));
    CKPT_ASSIGN_OR_RETURN(const Fingerprints* const prints, FingerprintsOf(*dtype));
    CKPT_ASSIGN_OR_RETURN(const BufferSteps steps, FindSteps(rows, *dtype, *prints));
    Result<std::vector<PlacedParameter>> order = FindOrder(steps, {rows.size(), 0}, parameters_);
    if (!order.ok() && order.status().first().kind == ErrorKind::kNotFound) {
      return ExplainNone(steps, rows.size(), *dtype);
    }
    if (!order.ok()) return std::move(order).status();
    for (const PlacedParameter& placed : *order) AddStates(placed, *rows[placed.begin.bucket]);
    return OkStatus();
  }

  // In order, each with the same fields.
  static Result<std::vector<const Bucket*>> CheckBuckets(
      const std::map<std::int64_t, Bucket>& buckets) {
    std::vector<const Bucket*> rows;
    for (const auto& [number, bucket] : buckets) {
      const auto exact = bucket.find(kMainWeight);
      const bool is_next = number == static_cast<std::int64_t>(rows.size());
      if (!is_next || exact == bucket.end()) {
        return Error(ErrorKind::kMissing, "a buffer of the optimizer is not whole")
            .Expected(fmt::format("bucket_idx_{}.{}", rows.size(), kMainWeight));
      }
      for (const auto& [field, tensor] : bucket) {
        const bool fits = tensor->shape.size() == 1 && tensor->shape == exact->second->shape &&
                          buckets.begin()->second.contains(field) &&
                          bucket.size() == buckets.begin()->second.size();
        if (fits) continue;
        return Error(ErrorKind::kBadMetadata, "the buffers of one bucket differ in their shape")
            .Expected(fmt::format("{} of {}", field, FormatDims(exact->second->shape)))
            .Actual(FormatDims(tensor->shape));
      }
      if (!IsCastable(exact->second->dtype)) {
        return Error(ErrorKind::kUnsupported, "exact values of a dtype that is not converted")
            .Actual(std::string(DTypeName(exact->second->dtype)));
      }
      rows.push_back(&bucket);
    }
    return rows;
  }

  Result<const Fingerprints*> FingerprintsOf(DType dtype) {
    const auto known = prints_.find(dtype);
    if (known != prints_.end()) return &known->second;
    CKPT_ASSIGN_OR_RETURN(Fingerprints prints, Fingerprints::Take(parameters_, dtype, reader_));
    return &prints_.emplace(dtype, std::move(prints)).first->second;
  }

  // From every position that is reached from the begin.
  Result<BufferSteps> FindSteps(const std::vector<const Bucket*>& rows, DType dtype,
                                const Fingerprints& prints) {
    BufferSteps steps;
    std::set<BufferPosition> reached = {BufferPosition()};
    std::optional<std::size_t> bucket;
    std::set<std::int64_t> borders;
    while (!reached.empty()) {
      const BufferPosition begin = *reached.begin();
      reached.erase(reached.begin());
      if (begin.bucket == rows.size()) break;
      const GlobalTensor& exact = *rows[begin.bucket]->find(kMainWeight)->second;
      if (bucket != begin.bucket) borders = Borders(below().index(), exact);
      bucket = begin.bucket;
      CKPT_ASSIGN_OR_RETURN(steps[begin], StepsFrom(begin, exact, borders, dtype, prints, reader_));
      for (const BufferStep& step : steps[begin]) reached.insert(step.next);
    }
    return steps;
  }

  // Up to where parameters were found.
  static Status ExplainNone(const BufferSteps& steps, std::size_t num_buckets, DType dtype) {
    const BufferPosition& last = steps.rbegin()->first;
    const bool all_fit = !steps.rbegin()->second.empty() &&
                         steps.rbegin()->second.front().next.bucket == num_buckets;
    Status error = Error(ErrorKind::kUnsupported,
                         "what the optimizer keeps cannot be assigned to the model's weights");
    const std::string place = fmt::format("element {} of bucket {}", last.elem, last.bucket);
    if (all_fit) {
      error = std::move(error)
                  .Expected("parameters in the order of Megatron's modules, the last one first")
                  .Actual("weights of equal values in no such order");
    } else {
      error = std::move(error)
                  .Expected(fmt::format("exact values of a {} weight of the model, as one of its "
                                        "chunks or as gate and up",
                                        DTypeName(dtype)))
                  .Actual(fmt::format("values at {} that round to no weight", place));
    }
    return std::move(error).Hint(
        "Megatron saves a tensor for each parameter with dist_ckpt_optim_fully_reshardable");
  }

  // Every field of a parameter, if no group before had the same one.
  void AddStates(const PlacedParameter& placed, const Bucket& bucket) {
    const LocalParameter& parameter = parameters_[placed.parameter];
    if (!added_.emplace(parameter.weight, parameter.boxes.front().offsets).second) return;
    for (const auto& [field, tensor] : bucket) {
      UnpackedTensor& unpacked =
          tensors_[fmt::format("{}{}.{}", kOptimizerState, field, parameter.weight->key)];
      unpacked.weight = parameter.weight;
      unpacked.dtype = tensor->dtype;
      std::int64_t first = placed.begin.elem;
      for (const Box& box : parameter.boxes) {
        AddBox(box, first, *tensor, unpacked);
        first += NumElements(box.sizes);
      }
    }
  }

  // A box whose elements begin at one of a bucket.
  void AddBox(const Box& box, std::int64_t first, const GlobalTensor& bucket,
              UnpackedTensor& unpacked) const {
    const CheckpointIndex& stored = below().index();
    const std::int64_t behind = first + NumElements(box.sizes);
    unpacked.elems += behind - first;
    for (const Chunk& chunk : stored.chunks(bucket)) {
      const std::int64_t chunk_begin = stored.offsets(chunk)[0];
      const std::int64_t begin = std::max(first, chunk_begin);
      const std::int64_t end = std::min(behind, chunk_begin + stored.sizes(chunk)[0]);
      if (begin >= end) continue;
      for (FlatBox& cut : CutFlatRange(box.sizes, begin - first, end - first)) {
        for (std::size_t d = 0; d < box.sizes.size(); ++d) cut.box.offsets[d] += box.offsets[d];
        unpacked.boxes.push_back(std::move(cut.box));
        unpacked.slices.push_back({.bucket = &bucket,
                                   .chunk = &chunk,
                                   .first_elem = first + cut.first_elem - chunk_begin,
                                   .strides = ContiguousStrides(box.sizes)});
      }
    }
  }

  [[nodiscard]] Status CheckWhole() const {
    Status absent;
    for (const auto& [key, unpacked] : tensors_) {
      const std::int64_t elems = NumElements(unpacked.weight->shape);
      if (unpacked.elems == elems) continue;
      absent.Add(Error(ErrorKind::kMissing, "the buffers have a part of a weight's state")
                     .Tensor(key)
                     .Expected(fmt::format("{} elements", elems))
                     .Actual(fmt::format("{}", unpacked.elems)));
    }
    return absent;
  }

  Status BuildIndex(const Buffers& buffers) {
    const CheckpointIndex& stored = below().index();
    std::set<const GlobalTensor*> replaced;
    for (const auto& [id, buckets] : buffers) {
      for (const auto& [number, bucket] : buckets) {
        for (const auto& [field, tensor] : bucket) replaced.insert(tensor);
      }
    }
    IndexBuilder builder;
    BeginCopy(stored, builder);
    for (const GlobalTensor& tensor : stored.tensors()) {
      if (!replaced.contains(&tensor)) CopyTensor(stored, tensor, builder);
    }
    for (const auto& [key, unpacked] : tensors_) {
      builder.AddTensor(key, unpacked.dtype, unpacked.weight->shape);
      for (std::size_t i = 0; i < unpacked.boxes.size(); ++i) {
        const Chunk& chunk = *unpacked.slices[i].chunk;
        const EncodingId encoding = builder.AddEncoding(stored.encoding(chunk) + "+flat");
        builder.AddChunk(unpacked.boxes[i], chunk.file, encoding, chunk.offset_bytes,
                         chunk.size_bytes);
      }
    }
    for (const ObjectEntry& object : stored.objects()) builder.AddObject(object);
    CKPT_ASSIGN_OR_RETURN(CheckpointIndex index, builder.Build());
    SetIndex(std::move(index));
    return OkStatus();
  }

  const std::vector<LocalParameter> parameters_;
  SampleReader reader_;
  std::map<DType, Fingerprints> prints_;
  std::set<std::pair<const GlobalTensor*, Dims>> added_;
  std::map<std::string, UnpackedTensor> tensors_;  // by key
};

}  // namespace

Result<std::shared_ptr<const CheckpointSource>> UnpackBuffers(
    std::shared_ptr<const CheckpointSource> source) {
  Buffers buffers;
  for (const GlobalTensor& tensor : source->index().tensors()) AddBucket(tensor, buffers);
  if (buffers.empty()) return source;
  auto unpacked = std::make_shared<UnpackedSource>(std::move(source));
  CKPT_RETURN_IF_ERROR(unpacked->Unpack(buffers));
  return std::shared_ptr<const CheckpointSource>(std::move(unpacked));
}

}  // namespace ckpt::torch_dist
