#include "converters/quantised/decoded_weights.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/quantised/internal/decoded_source.h"
#include "converters/quantised/internal/storage_scheme.h"
#include "core/base/checked_math.h"
#include "core/tensor/mxfp4.h"

namespace ckpt {
namespace {

using internal::CodedTensor;
using internal::Coding;
using internal::StorageScheme;

// What the fp8 method calls scales, with the weight's own name before it.
constexpr std::string_view kFp8Scale = ".weight_scale_inv";

std::string FileOf(const CheckpointIndex& index, const GlobalTensor& tensor) {
  const auto chunks = index.chunks(tensor);
  return chunks.empty() ? std::string() : index.files()[chunks.front().file];
}

std::string Describe(DType dtype, DimsView shape) {
  return fmt::format("{} {}", DTypeName(dtype), FormatDims(shape));
}

// "float32, bfloat16 or float16".
std::string NamesOf(std::span<const DType> dtypes) {
  std::string names(DTypeName(dtypes.front()));
  for (std::size_t i = 1; i < dtypes.size(); ++i) {
    names += i + 1 < dtypes.size() ? ", " : " or ";
    names += DTypeName(dtypes[i]);
  }
  return names;
}

// The key of the weight whose part has this key and suffix.
std::string_view WeightOf(std::string_view key, std::string_view suffix) {
  return key.substr(0, key.size() - suffix.size());
}

// Shape and blocks of the values. Nothing if codes of this shape are none of the method's.
std::optional<CodedTensor> ShapeOfValues(const StorageScheme& scheme, const GlobalTensor& codes) {
  CodedTensor tensor{.codes = &codes, .coding = scheme.coding, .shape = codes.shape};
  if (scheme.coding == Coding::kMxfp4) {
    const bool has_blocks = codes.shape.size() >= 2 && codes.shape.back() == kMxfp4BlockBytes;
    if (!has_blocks) return std::nullopt;
    tensor.shape.pop_back();
    std::int64_t& columns = tensor.shape.back();
    if (!CheckedMul(columns, std::int64_t{kMxfp4BlockElements}, &columns)) return std::nullopt;
  }
  const std::size_t ndim = tensor.shape.size();
  if (ndim < (scheme.coding == Coding::kMxfp4 ? 1 : 2)) return std::nullopt;
  if (!CountBytes(tensor.shape, DType::kBfloat16).ok()) return std::nullopt;
  tensor.block.assign(ndim, 1);
  tensor.block[ndim - 1] = scheme.block_columns;
  if (ndim >= 2) tensor.block[ndim - 2] = scheme.block_rows;
  for (std::size_t d = 0; d < ndim; ++d) {
    tensor.block[d] = std::min(tensor.block[d], std::max<std::int64_t>(tensor.shape[d], 1));
  }
  return tensor;
}

Dims GridShape(const CodedTensor& tensor) {
  Dims grid = tensor.shape;
  for (std::size_t d = 0; d < grid.size(); ++d) {
    grid[d] = grid[d] / tensor.block[d] + (grid[d] % tensor.block[d] != 0 ? 1 : 0);
  }
  return grid;
}

// The weight that has `codes`. Errors: those of DecodeWeights.
Result<CodedTensor> PairWithScales(const CheckpointIndex& index, const StorageScheme& scheme,
                                   const GlobalTensor& codes) {
  const auto fail = [&](ErrorKind kind, std::string_view rule, const GlobalTensor& tensor) {
    return Error(kind, rule).File(FileOf(index, tensor)).Tensor(tensor.key);
  };
  CKPT_RETURN_IF_ERROR(index.CheckDeliverable(codes.key));
  const std::string scales_key =
      std::string(WeightOf(codes.key, scheme.codes_suffix)) + std::string(scheme.scales_suffix);
  const GlobalTensor* const scales = index.FindTensor(scales_key);
  if (scales == nullptr) {
    return fail(ErrorKind::kMissing, "a quantised weight has no scales", codes)
        .Expected(scales_key)
        .Actual(Describe(codes.dtype, codes.shape));
  }
  CKPT_RETURN_IF_ERROR(index.CheckDeliverable(scales_key));
  if (scheme.Excludes(codes.key)) {
    return fail(ErrorKind::kBadMetadata, "a weight is quantised that the configuration excludes",
                codes)
        .Expected("a weight without scales")
        .Actual(scales_key);
  }
  if (codes.dtype != scheme.codes_dtype) {
    return fail(ErrorKind::kDtypeMismatch, "a weight that has scales is not quantised", codes)
        .Expected(DTypeName(scheme.codes_dtype))
        .Actual(DTypeName(codes.dtype));
  }
  std::optional<CodedTensor> tensor = ShapeOfValues(scheme, codes);
  if (!tensor) {
    return fail(ErrorKind::kShapeMismatch, "a quantised weight has a shape that is none", codes)
        .Expected(scheme.coding == Coding::kMxfp4 ? fmt::format("[…, blocks, {}]", kMxfp4BlockBytes)
                                                  : std::string("[…, rows, columns]"))
        .Actual(FormatDims(codes.shape));
  }
  const Dims grid = GridShape(*tensor);
  if (std::ranges::find(scheme.scales_dtypes, scales->dtype) == scheme.scales_dtypes.end()) {
    return fail(ErrorKind::kDtypeMismatch, "scales have another dtype", *scales)
        .Expected(fmt::format("{} {}", NamesOf(scheme.scales_dtypes), FormatDims(grid)))
        .Actual(Describe(scales->dtype, scales->shape));
  }
  if (scales->shape != grid) {
    return fail(ErrorKind::kShapeMismatch, "scales do not fit the blocks of their weight", *scales)
        .Expected(fmt::format("{}: a scale for each block of {} in {}", FormatDims(grid),
                              FormatDims(tensor->block), FormatDims(tensor->shape)))
        .Actual(FormatDims(scales->shape));
  }
  tensor->scales = scales;
  return *std::move(tensor);
}

bool IsFloat8(DType dtype) {
  return dtype == DType::kFloat8E4m3fn || dtype == DType::kFloat8E5m2 ||
         dtype == DType::kFloat8E4m3fnuz || dtype == DType::kFloat8E5m2fnuz;
}

bool IsCodes(const StorageScheme& scheme, const CheckpointIndex& index,
             const GlobalTensor& tensor) {
  if (scheme.coding == Coding::kMxfp4) return tensor.key.ends_with(scheme.codes_suffix);
  const bool is_scales = tensor.key.ends_with(scheme.scales_suffix);
  return !is_scales &&
         (IsFloat8(tensor.dtype) ||
          index.FindTensor(tensor.key + std::string(scheme.scales_suffix)) != nullptr);
}

// Scales whose weight is not there.
Status CheckScales(const CheckpointIndex& index, const StorageScheme& scheme) {
  Status status;
  for (const GlobalTensor& tensor : index.tensors()) {
    if (!tensor.key.ends_with(scheme.scales_suffix)) continue;
    const std::string codes =
        std::string(WeightOf(tensor.key, scheme.scales_suffix)) + std::string(scheme.codes_suffix);
    if (index.FindTensor(codes) != nullptr) continue;
    status.Add(Error(ErrorKind::kMissing, "there are scales of a weight, and no weight")
                   .File(FileOf(index, tensor))
                   .Tensor(tensor.key)
                   .Expected(codes));
  }
  return status;
}

// A configuration that says nothing of the scales that are there.
Status CheckNoScales(const CheckpointIndex& index, const layout::Configuration& config) {
  if (config.contains("quantization_config.quant_method")) return OkStatus();
  const auto scales = std::ranges::find_if(
      index.tensors(), [](const GlobalTensor& tensor) { return tensor.key.ends_with(kFp8Scale); });
  if (scales == index.tensors().end()) return OkStatus();
  return Error(ErrorKind::kMissing,
               "weights have scales, and the configuration does not say how they are quantised")
      .File(FileOf(index, *scales))
      .Tensor(scales->key)
      .Expected("quantization_config in config.json");
}

}  // namespace

Result<DecodedWeights> DecodeWeights(std::shared_ptr<const CheckpointSource> source,
                                     const layout::Configuration& config) {
  const CheckpointIndex& index = source->index();
  CKPT_ASSIGN_OR_RETURN(const std::optional<StorageScheme> scheme, internal::ReadScheme(config));
  if (!scheme) {
    CKPT_RETURN_IF_ERROR(CheckNoScales(index, config));
    return DecodedWeights();
  }
  Status status = CheckScales(index, *scheme);
  std::vector<CodedTensor> tensors;
  for (const GlobalTensor& tensor : index.tensors()) {
    if (!IsCodes(*scheme, index, tensor)) continue;
    Result<CodedTensor> coded = PairWithScales(index, *scheme, tensor);
    if (coded.ok()) {
      tensors.push_back(*std::move(coded));
    } else {
      status.Add(std::move(coded).status());
    }
  }
  if (!status.ok()) return status;
  if (tensors.empty()) return DecodedWeights();
  DecodedWeights decoded{
      .source = nullptr, .method = std::string(scheme->method), .weights = tensors.size()};
  CKPT_ASSIGN_OR_RETURN(decoded.source, internal::MakeDecodedSource(std::move(source), tensors));
  return decoded;
}

}  // namespace ckpt
