#include "formats/torch_dist/internal/grouped_states.h"

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "core/checkpoint/copy_index.h"
#include "core/checkpoint/view_source.h"
#include "core/layout/value.h"
#include "core/training/run_format.h"
#include "formats/torch_dist/internal/main_weights.h"
#include "formats/torch_dist/internal/read_args.h"
#include "formats/torch_dist/internal/run_arguments.h"
#include "formats/torch_dist/internal/run_keys.h"
#include "formats/torch_dist/internal/source.h"

namespace ckpt::torch_dist {
namespace {

// Ends the encoding of what is shown with another order of dims than that of the stored block.
constexpr std::string_view kTurned = "+turned";

template <typename Values>
Values Turned(Values values) {
  CKPT_CHECK(values.size() >= 2);
  std::swap(values.end()[-1], values.end()[-2]);
  return values;
}

// The weight that a flattened state of grouped experts belongs to; null for any other tensor, and
// for one that was turned.
const GlobalTensor* WeightOf(const CheckpointIndex& index, const GlobalTensor& tensor) {
  const auto state = StateIn(tensor.key);
  const bool is_of_experts = state && IsOfGroupedExperts(state->second);
  if (!is_of_experts || tensor.shape.size() < 3 || tensor.num_chunks == 0) return nullptr;
  const Chunk& first = index.chunks(tensor).front();
  return index.encoding(first).ends_with(kFlattened) ? index.FindTensor(state->second) : nullptr;
}

// By the key of a state, its weight.
using WeightsByState = std::map<std::string, const GlobalTensor*>;

// Whether the exact values among these states lie in another order than the weights. All experts of
// a run are of one class: the first pair that tells it decides.
Result<std::optional<bool>> AskExactValues(const CheckpointSource& source,
                                           const WeightsByState& square) {
  constexpr std::size_t kMostCompared = 8;
  std::size_t compared = 0;
  for (const auto& [key, weight] : square) {
    const std::string name = StateIn(key)->first;
    if (name != kMainWeight && name != kMainWeightInModelSpace) continue;
    if (compared++ == kMostCompared) break;
    const GlobalTensor& exact = *source.index().FindTensor(key);
    CKPT_ASSIGN_OR_RETURN(const std::optional<bool> told, AreTransposed(source, exact, *weight));
    if (told) return told;
  }
  return std::optional<bool>();
}

// Whether these states lie in another order than the weights, of which the shape says nothing.
// Errors: those of ReadArgs and of reading the exact values; kMissing (nothing says it).
Result<bool> AreSquareTurned(const CheckpointSource& source, const WeightsByState& square) {
  const Result<layout::Configuration> args = ReadArgs(source);
  if (!args.ok() && IsUnread(args.status().kind())) return args.status();
  // This costs nothing: values are read where it does not tell.
  if (args.ok()) {
    if (const auto joins = RunArguments(*args).JoinsExperts(/*is_certain=*/true)) return *joins;
  }
  CKPT_ASSIGN_OR_RETURN(const std::optional<bool> told, AskExactValues(source, square));
  if (told) return *told;
  CKPT_RETURN_IF_ERROR(args.status());
  if (const std::optional<bool> joins = RunArguments(*args).JoinsExperts()) return *joins;
  return Error(ErrorKind::kMissing, "neither the run's arguments nor exact values say it")
      .Expected("args.moe_grouped_gemm and args.transformer_impl in common_state")
      .Hint(std::string(kTakeWeightsAlone));
}

// `cause`: why the order is not known in which the state lies.
Status OrderUnknown(const Status& cause, const std::string& key) {
  Problem problem = cause.first();
  problem.message = "the order of a state of square weights is not known: " + problem.message;
  problem.tensor = key;
  return Status(std::move(problem));
}

class TurnedSource final : public ViewSource {
 public:
  TurnedSource(std::unique_ptr<CheckpointSource> below, std::set<std::string> turned)
      : ViewSource(std::move(below)), turned_(std::move(turned)) {}

  // What is `unknown` is left out, because of `cause`.
  Status Turn(const std::set<std::string>& unknown, const Status& cause) {
    const CheckpointIndex& stored = below().index();
    IndexBuilder builder;
    BeginCopy(stored, builder);
    for (const GlobalTensor& tensor : stored.tensors()) {
      if (unknown.contains(tensor.key)) {
        builder.AddProblems(OrderUnknown(cause, tensor.key));
        continue;
      }
      if (!turned_.contains(tensor.key)) {
        CopyTensor(stored, tensor, builder);
        continue;
      }
      builder.AddTensor(tensor.key, tensor.dtype, Turned(tensor.shape));
      for (const Chunk& chunk : stored.chunks(tensor)) {
        Box box = stored.box(chunk);
        box = {.offsets = Turned(std::move(box.offsets)), .sizes = Turned(std::move(box.sizes))};
        const EncodingId encoding =
            builder.AddEncoding(stored.encoding(chunk) + std::string(kTurned));
        builder.AddChunk(box, chunk.file, encoding, chunk.offset_bytes, chunk.size_bytes);
      }
    }
    CopyObjects(stored, builder);
    CKPT_ASSIGN_OR_RETURN(CheckpointIndex index, builder.Build());
    SetIndex(std::move(index));
    return OkStatus();
  }

  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override {
    if (!turned_.contains(tensor.key)) return ViewSource::Locate(tensor, chunk);
    const GlobalTensor* const stored = below().index().FindTensor(tensor.key);
    CKPT_CHECK(stored != nullptr);
    const Chunk& inner = below().index().chunks(*stored)[PositionOf(tensor, chunk)];
    CKPT_ASSIGN_OR_RETURN(StoredArray array, below().Locate(*stored, inner));
    array.strides = Turned(std::move(array.strides));
    return array;
  }

 private:
  const std::set<std::string> turned_;
};

}  // namespace

bool IsOfGroupedExperts(std::string_view key) {
  return key.find(".mlp.experts.experts.linear_fc") != key.npos && key.ends_with(".weight");
}

Result<std::unique_ptr<CheckpointSource>> TurnGroupedStates(
    std::unique_ptr<CheckpointSource> source) {
  const CheckpointIndex& index = source->index();
  std::set<std::string> turned;
  WeightsByState square;
  for (const GlobalTensor& tensor : index.tensors()) {
    const GlobalTensor* const weight = WeightOf(index, tensor);
    if (weight == nullptr || weight->shape != Turned(tensor.shape)) continue;
    if (weight->shape == tensor.shape) {
      square.emplace(tensor.key, weight);
    } else {
      turned.insert(tensor.key);
    }
  }
  std::set<std::string> unknown;
  Status cause;
  if (!square.empty()) {
    const Result<bool> are_turned = AreSquareTurned(*source, square);
    if (!are_turned.ok() && IsUnread(are_turned.status().kind())) return are_turned.status();
    if (!are_turned.ok()) cause = are_turned.status();
    for (const auto& [key, weight] : square) {
      if (!are_turned.ok()) {
        unknown.insert(key);
      } else if (*are_turned) {
        turned.insert(key);
      }
    }
  }
  if (turned.empty() && unknown.empty()) return source;
  auto seen = std::make_unique<TurnedSource>(std::move(source), std::move(turned));
  CKPT_RETURN_IF_ERROR(seen->Turn(unknown, cause));
  return std::unique_ptr<CheckpointSource>(std::move(seen));
}

}  // namespace ckpt::torch_dist
