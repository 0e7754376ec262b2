#include "formats/torch_dist/internal/unpacked_buffers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/checkpoint/copy_index.h"
#include "core/checkpoint/view_source.h"
#include "core/tensor/shape.h"
#include "formats/megatron/buffer_layout.h"
#include "formats/torch_dist/internal/buffer_keys.h"
#include "formats/torch_dist/internal/buffer_search.h"
#include "formats/torch_dist/internal/flat_range.h"
#include "formats/torch_dist/internal/local_parameter.h"
#include "formats/torch_dist/internal/parameter_samples.h"
#include "formats/torch_dist/internal/read_args.h"
#include "formats/torch_dist/internal/run_arguments.h"
#include "formats/torch_dist/internal/run_keys.h"
#include "formats/torch_dist/internal/source.h"
#include "formats/torch_dist/internal/weight_key.h"

namespace ckpt::torch_dist {
namespace {

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
                                          const ParameterSamples& samples, SampleReader& reader) {
  const bool shows_ends = borders.size() > 2;
  const std::int64_t bucket_elems = bucket.shape[0];
  std::vector<BufferStep> steps;
  for (const auto& [elems, of_size] : samples) {
    if (elems > bucket_elems - begin.elem) break;
    const std::int64_t end = begin.elem + elems;
    if (shows_ends && !borders.contains(end)) continue;
    CKPT_ASSIGN_OR_RETURN(const Bytes sample, reader.OfBucket(bucket, begin.elem, elems, dtype));
    const auto equal = of_size.find(AsText(sample));
    if (equal == of_size.end()) continue;
    // It is followed by room alone if the next bucket is that of a shared embedding.
    const bool is_last = megatron::ParameterBegin(end) >= bucket_elems;
    const BufferPosition next = is_last
                                    ? BufferPosition{begin.bucket + 1, 0}
                                    : BufferPosition{begin.bucket, megatron::ParameterBegin(end)};
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
  // `packed` and `parameters`: of the source.
  UnpackedSource(std::shared_ptr<const CheckpointSource> source, Buffers packed,
                 std::vector<LocalParameter> parameters)
      : ViewSource(std::move(source)),
        packed_(std::move(packed)),
        parameters_(std::move(parameters)),
        reader_(below()) {}

  Status Unpack() {
    for (const auto& [id, buckets] : packed_) {
      const GlobalTensor& any = *buckets.begin()->second.begin()->second;
      if (Status status = UnpackBuffer(id, buckets); !status.ok()) {
        return std::move(status).Tensor(any.key);
      }
    }
    AddStates();
    CKPT_RETURN_IF_ERROR(CheckWhole());
    return BuildIndex();
  }

  // None if a parameter is turned: its elements are not those of boxes in C order.
  [[nodiscard]] RankBuffers buffers() const { return has_turned_ ? RankBuffers() : buffers_; }

  // Likewise.
  [[nodiscard]] PackedParts Parts() const {
    PackedParts parts;
    if (has_turned_) return parts;
    for (const auto& [bucket, placed] : placed_) {
      const LocalParameter& parameter = parameters_[placed.parameter];
      for (const auto& [field, tensor] : *bucket) {
        std::int64_t first = placed.begin.elem;
        for (const Box& box : parameter.boxes) {
          parts[tensor->key].push_back(
              {.tensor = StateKey(field, parameter), .box = box, .first_elem = first});
          first += NumElements(box.sizes);
        }
      }
    }
    return parts;
  }

  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override {
    const auto unpacked = tensors_.find(tensor.key);
    if (unpacked == tensors_.end()) return ViewSource::Locate(tensor, chunk);
    const UnpackedSlice& slice = unpacked->second.slices[PositionOf(tensor, chunk)];
    CKPT_ASSIGN_OR_RETURN(StoredArray row, below().Locate(*slice.bucket, *slice.chunk));
    return InRow(std::move(row), slice.first_elem, slice.strides, index().sizes(chunk));
  }

 private:
  static std::string StateKey(std::string_view field, const LocalParameter& parameter) {
    return fmt::format("{}{}.{}", kOptimizerState, field, parameter.weight->key);
  }

  Status UnpackBuffer(const BufferId& id, const std::map<std::int64_t, Bucket>& buckets) {
    const std::optional<BufferDTypes> dtypes = ParseBufferDTypes(id.dtypes);
    if (!dtypes || !IsCastable(dtypes->parameters)) {
      return Error(ErrorKind::kUnsupported, "a buffer of weights whose dtype is not converted")
          .Expected("float32, bfloat16 or float16")
          .Actual(id.dtypes);
    }
    const DType dtype = dtypes->parameters;
    CKPT_ASSIGN_OR_RETURN(const std::vector<const Bucket*> rows, CheckBuckets(buckets));
    CKPT_ASSIGN_OR_RETURN(const ParameterSamples* const samples, SamplesOf(dtype));
    CKPT_ASSIGN_OR_RETURN(const BufferSteps steps, FindSteps(rows, dtype, *samples));
    Result<std::vector<PlacedParameter>> order = FindOrder(steps, {rows.size(), 0}, parameters_);
    if (!order.ok() && order.status().first().kind == ErrorKind::kNotFound) {
      return ExplainNone(steps, rows.size(), dtype);
    }
    if (!order.ok()) return std::move(order).status();
    RankBuffer& buffer = buffers_.emplace_back(RankBuffer{.id = id, .buckets = {}});
    for (const Bucket* row : rows) {
      buffer.buckets.push_back({.elems = row->find(kMainWeight)->second->shape[0], .parts = {}});
    }
    for (const PlacedParameter& placed : *order) {
      const auto& [bucket, begin] = placed.begin;
      const LocalParameter& parameter = parameters_[placed.parameter];
      placed_.emplace_back(rows[bucket], placed);
      for (const auto& [field, tensor] : *rows[bucket]) {
        UnpackedTensor& unpacked = tensors_[StateKey(field, parameter)];
        unpacked.weight = parameter.weight;
        unpacked.dtype = tensor->dtype;
      }
      has_turned_ = has_turned_ || parameter.is_turned;
      if (!has_turned_) buffer.buckets[bucket].parts.push_back(PartOf(parameter, begin));
    }
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

  Result<const ParameterSamples*> SamplesOf(DType dtype) {
    const auto known = samples_.find(dtype);
    if (known != samples_.end()) return &known->second;
    CKPT_ASSIGN_OR_RETURN(ParameterSamples samples, SampleParameters(parameters_, dtype, reader_));
    return &samples_.emplace(dtype, std::move(samples)).first->second;
  }

  // From every position that is reached from the begin.
  Result<BufferSteps> FindSteps(const std::vector<const Bucket*>& rows, DType dtype,
                                const ParameterSamples& samples) {
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
      CKPT_ASSIGN_OR_RETURN(steps[begin],
                            StepsFrom(begin, exact, borders, dtype, samples, reader_));
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
      error =
          std::move(error)
              .Expected(fmt::format("exact values of a {} weight of the model, of the part that "
                                    "a rank has, as args or its chunks say",
                                    DTypeName(dtype)))
              .Actual(fmt::format("values at {} that round to no weight", place));
    }
    return std::move(error).Hint(
        "Megatron saves a tensor for each parameter with dist_ckpt_optim_fully_reshardable");
  }

  // Where a parameter lies.
  struct Place {
    const GlobalTensor* bucket = nullptr;
    std::int64_t first_elem = 0;
  };
  // A chunk of a bucket that has elements of a parameter: [begin, end) of these.
  struct ChunkPart {
    const Chunk* chunk = nullptr;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  // The chunks of a bucket by where they begin, each with the farthest end of those up to it.
  struct SortedChunk {
    std::int64_t begin = 0;
    std::int64_t farthest_end = 0;
    const Chunk* chunk = nullptr;
  };
  using SortedChunks = std::map<const GlobalTensor*, std::vector<SortedChunk>>;

  // What groups have more than once is cut where the chunks of any end, so that copies have equal
  // boxes.
  void AddStates() {
    struct Copies {
      const LocalParameter* parameter = nullptr;
      std::vector<Place> places = {};
    };
    SortedChunks sorted;
    std::map<std::tuple<std::string, Dims, Dims, bool>, Copies> states;
    for (const auto& [bucket, placed] : placed_) {
      const LocalParameter& parameter = parameters_[placed.parameter];
      const Box& box = parameter.boxes.front();
      for (const auto& [field, tensor] : *bucket) {
        Copies& copies =
            states[{StateKey(field, parameter), box.offsets, box.sizes, parameter.is_turned}];
        copies.parameter = &parameter;
        copies.places.push_back({.bucket = tensor, .first_elem = placed.begin.elem});
        if (!sorted.contains(tensor)) sorted.emplace(tensor, SortChunks(*tensor));
      }
    }
    for (const auto& [id, copies] : states) {
      AddParameter(*copies.parameter, copies.places, sorted, tensors_[std::get<0>(id)]);
    }
  }

  [[nodiscard]] std::vector<SortedChunk> SortChunks(const GlobalTensor& bucket) const {
    const CheckpointIndex& stored = below().index();
    std::vector<SortedChunk> sorted;
    for (const Chunk& chunk : stored.chunks(bucket)) {
      const std::int64_t begin = stored.offsets(chunk)[0];
      sorted.push_back({begin, begin + stored.sizes(chunk)[0], &chunk});
    }
    std::ranges::stable_sort(sorted, {}, &SortedChunk::begin);
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      sorted[i].farthest_end = std::max(sorted[i].farthest_end, sorted[i - 1].farthest_end);
    }
    return sorted;
  }

  // Those that have some of a parameter's elements.
  [[nodiscard]] std::vector<ChunkPart> PartsIn(const std::vector<SortedChunk>& sorted,
                                               const Place& place, std::int64_t elems) const {
    const CheckpointIndex& stored = below().index();
    std::vector<ChunkPart> parts;
    auto at = std::ranges::upper_bound(sorted, place.first_elem, {}, &SortedChunk::farthest_end);
    for (; at != sorted.end() && at->begin < place.first_elem + elems; ++at) {
      const std::int64_t begin = at->begin - place.first_elem;
      const ChunkPart part = {
          .chunk = at->chunk,
          .begin = std::clamp<std::int64_t>(begin, 0, elems),
          .end = std::clamp<std::int64_t>(begin + stored.sizes(*at->chunk)[0], 0, elems)};
      if (part.begin < part.end) parts.push_back(part);
    }
    return parts;
  }

  void AddParameter(const LocalParameter& parameter, const std::vector<Place>& copies,
                    const SortedChunks& sorted, UnpackedTensor& unpacked) const {
    const CheckpointIndex& stored = below().index();
    unpacked.elems += parameter.elems;
    std::vector<std::vector<ChunkPart>> parts;  // of each copy
    std::set<std::int64_t> cuts;
    for (const Place& place : copies) {
      parts.push_back(PartsIn(sorted.at(place.bucket), place, parameter.elems));
      for (const ChunkPart& part : parts.back()) cuts.insert({part.begin, part.end});
    }
    for (std::size_t copy = 0; copy < copies.size(); ++copy) {
      const Place& place = copies[copy];
      for (const auto& [chunk, begin, end] : parts[copy]) {
        const std::int64_t in_chunk = place.first_elem - stored.offsets(*chunk)[0];
        for (auto cut = cuts.find(begin); *cut < end; ++cut) {
          for (LocalPiece& piece : CutParameter(parameter, *cut, *std::next(cut))) {
            unpacked.boxes.push_back(std::move(piece.box));
            unpacked.slices.push_back({.bucket = place.bucket,
                                       .chunk = chunk,
                                       .first_elem = in_chunk + piece.first_elem,
                                       .strides = std::move(piece.strides)});
          }
        }
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

  Status BuildIndex() {
    const CheckpointIndex& stored = below().index();
    std::set<const GlobalTensor*> replaced;
    for (const auto& [id, buckets] : packed_) {
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
        const EncodingId encoding =
            builder.AddEncoding(stored.encoding(chunk) + std::string(kFlattened));
        builder.AddChunk(unpacked.boxes[i], chunk.file, encoding, chunk.offset_bytes,
                         chunk.size_bytes);
      }
    }
    CopyObjects(stored, builder);
    CKPT_ASSIGN_OR_RETURN(CheckpointIndex index, builder.Build());
    SetIndex(std::move(index));
    return OkStatus();
  }

  const Buffers packed_;
  const std::vector<LocalParameter> parameters_;
  SampleReader reader_;
  std::map<DType, ParameterSamples> samples_;
  std::map<std::string, UnpackedTensor> tensors_;  // by key
  RankBuffers buffers_;
  bool has_turned_ = false;
  std::vector<std::pair<const Bucket*, PlacedParameter>> placed_;
};

// A weight of one expert, which has a number in its key; empty: there is none.
std::string KeyOfSingleExpert(const CheckpointIndex& index) {
  for (const GlobalTensor& tensor : index.tensors()) {
    if (IsOfExperts(tensor.key) && !FormOfKey(tensor.key).stacks_experts) return tensor.key;
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const CheckpointSource>> UnpackBuffers(
    std::shared_ptr<const CheckpointSource> source) {
  Buffers buffers = FindBuffers(source->index());
  if (buffers.empty()) return source;
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration args, ReadArgs(*source));
  CKPT_ASSIGN_OR_RETURN(std::vector<LocalParameter> parameters,
                        LocalParameters(source->index(), RunRanks::Of(args)));
  const std::string single_expert = KeyOfSingleExpert(source->index());
  auto unpacked = std::make_shared<UnpackedSource>(std::move(source), std::move(buffers),
                                                   std::move(parameters));
  const Status status = unpacked->Unpack();
  if (!status.ok() && status.kind() == ErrorKind::kUnsupported && !single_expert.empty() &&
      RunArguments(args).HasOneArrayOfExperts()) {
    return Error(ErrorKind::kUnsupported,
                 "buffers in which all experts of a layer are one parameter are read only beside "
                 "weights of one key for all experts")
        .Tensor(single_expert)
        .Expected("decoder.layers.mlp.experts.experts.linear_fc1.weight")
        .Actual(
            "args.moe_grouped_gemm without Transformer Engine's layers, and a key for each "
            "expert (singleton_local_shards)");
  }
  CKPT_RETURN_IF_ERROR(status);
  return std::shared_ptr<const CheckpointSource>(std::move(unpacked));
}

RankBuffers BuffersOf(const CheckpointSource& source) {
  const auto* const unpacked = dynamic_cast<const UnpackedSource*>(&source);
  return unpacked == nullptr ? RankBuffers() : unpacked->buffers();
}

PackedParts PartsOfBuffers(const CheckpointSource& source) {
  const auto* const unpacked = dynamic_cast<const UnpackedSource*>(&source);
  return unpacked == nullptr ? PackedParts() : unpacked->Parts();
}

}  // namespace ckpt::torch_dist
