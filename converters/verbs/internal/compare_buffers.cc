#include "converters/verbs/internal/compare_buffers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/checkpoint/write_plan.h"
#include "core/layout/affine.h"
#include "core/tensor/shape.h"
#include "formats/registry/stored_run.h"

namespace ckpt {
namespace {

// A part of a tensor, and each place where its elements lie in a buffer.
struct Part {
  struct Place {
    std::uint32_t buffer = 0;  // its position in the index
    std::int64_t first_elem = 0;
  };

  Box box;
  std::vector<Place> places;
};

// What the optimizer keeps for one parameter.
struct BufferedTensor {
  DType dtype = DType::kFloat32;
  Dims shape;
  std::map<Dims, Part> parts = {};  // by where they begin

  [[nodiscard]] std::size_t num_copies() const {
    std::size_t count = 0;
    for (const auto& [begin, part] : parts) count = std::max(count, part.places.size());
    return count;
  }
};

using BufferedTensors = std::map<std::string, BufferedTensor>;

// A box whose elements lie in a row, in C order.
layout::Nest FromRow(const Box& box, const Part::Place& place) {
  const Dims strides = ContiguousStrides(box.sizes);
  layout::Nest nest = {.source = place.buffer,
                       .target_origin = box.offsets,
                       .source_origin = {place.first_elem},
                       .loops = {}};
  for (std::size_t d = 0; d < strides.size(); ++d) {
    nest.loops.push_back(
        {.extent = box.sizes[d], .target_dim = static_cast<int>(d), .source_step = strides[d]});
  }
  layout::Normalize(nest);
  return nest;
}

TensorAsked AskCopy(const std::string& key, const BufferedTensor& tensor, std::size_t copy) {
  TensorAsked asked{.key = NameOfCopy(key, copy),
                    .dtype = tensor.dtype,
                    .shape = tensor.shape,
                    .recipe = {.nests = {}, .source_dtype = tensor.dtype}};
  for (const auto& [begin, part] : tensor.parts) {
    const bool has_copy = copy < part.places.size();
    asked.recipe.nests.push_back(FromRow(part.box, part.places[has_copy ? copy : 0]));
  }
  return asked;
}

// One side, and what was found of its parameters.
class Side {
 public:
  explicit Side(const std::shared_ptr<const OpenedCheckpoint>& stored) : stored_(stored) {
    Result<std::shared_ptr<const OpenedCheckpoint>> seen = SeeParameters(stored);
    if (!seen.ok()) {
      unknown_ = std::move(seen).status();
    } else if (*seen != stored) {
      seen_ = *std::move(seen);
      parts_ = PartsOfBuffers(*seen_);
    }
  }

  [[nodiscard]] const Status& unknown() const { return unknown_; }
  [[nodiscard]] bool has_parts() const { return !parts_.empty(); }

  // Whether `tensors` has every buffer.
  [[nodiscard]] bool HasBuffersIn(const TensorsByKey& tensors) const {
    return std::ranges::all_of(parts_,
                               [&](const auto& buffer) { return tensors.contains(buffer.first); });
  }
  void RemoveBuffers(TensorsByKey& tensors) const {
    for (const auto& [key, parts] : parts_) tensors.erase(key);
  }

  // Whether its buffers have the sizes of those of `other`.
  [[nodiscard]] bool HasBuffersLike(const Side& other) const {
    return std::ranges::all_of(other.parts_, [&](const auto& buffer) {
      const GlobalTensor& own = *index().FindTensor(buffer.first);
      const GlobalTensor& theirs = *other.index().FindTensor(buffer.first);
      return own.shape == theirs.shape && own.dtype == theirs.dtype;
    });
  }

  // Its tensors, if they lie where `like` has them.
  [[nodiscard]] BufferedTensors TensorsLike(const Side& like) const {
    BufferedTensors tensors;
    for (const auto& [key, parts] : like.parts_) {
      const auto buffer =
          static_cast<std::uint32_t>(index().FindTensor(key) - index().tensors().data());
      for (const PackedPart& part : parts) {
        const GlobalTensor& seen = *like.seen_->source->index().FindTensor(part.tensor);
        const auto [at, is_new] = tensors.try_emplace(
            part.tensor, BufferedTensor{.dtype = seen.dtype, .shape = seen.shape});
        Part& own = at->second.parts[part.box.offsets];
        own.box = part.box;
        own.places.push_back({.buffer = buffer, .first_elem = part.first_elem});
      }
    }
    return tensors;
  }

 private:
  [[nodiscard]] const CheckpointIndex& index() const { return stored_->source->index(); }

  std::shared_ptr<const OpenedCheckpoint> stored_;
  std::shared_ptr<const OpenedCheckpoint> seen_;
  PackedParts parts_;
  Status unknown_;  // why it is not known what lies where
};

void Add(const BufferedTensors& own, const BufferedTensors& other, TensorsByKey& tensors) {
  for (const auto& [key, tensor] : own) {
    const auto found = other.find(key);
    std::size_t num_copies = tensor.num_copies();
    if (found != other.end()) num_copies = std::max(num_copies, found->second.num_copies());
    for (std::size_t copy = 0; copy < num_copies; ++copy) {
      TensorAsked asked = AskCopy(key, tensor, copy);
      tensors.emplace(asked.key, std::move(asked));
    }
  }
}

}  // namespace

Status ReplaceBuffers(const std::shared_ptr<const OpenedCheckpoint>& a,
                      const std::shared_ptr<const OpenedCheckpoint>& b, TensorsByKey& tensors_a,
                      TensorsByKey& tensors_b, Comparison& comparison) {
  const Side side_a(a);
  const Side side_b(b);
  for (const Side* const side : {&side_a, &side_b}) {
    const bool is_damaged = !side->unknown().ok() && side->unknown().kind() == ErrorKind::kChecksum;
    if (is_damaged) return side->unknown();
  }
  comparison.a.places_unknown = side_a.unknown();
  comparison.b.places_unknown = side_b.unknown();
  if (!side_a.has_parts() && !side_b.has_parts()) return OkStatus();
  const Side& like_a = side_a.has_parts() ? side_a : side_b;
  const Side& like_b = side_b.has_parts() ? side_b : side_a;
  if (!side_a.HasBuffersLike(like_a) || !side_b.HasBuffersLike(like_b)) return OkStatus();
  if (!like_a.HasBuffersIn(tensors_a) || !like_b.HasBuffersIn(tensors_b)) {
    comparison.a.places_unknown = Error(ErrorKind::kBadMetadata, "one of them is damaged");
    return OkStatus();
  }
  like_a.RemoveBuffers(tensors_a);
  like_b.RemoveBuffers(tensors_b);
  const BufferedTensors buffered_a = side_a.TensorsLike(like_a);
  const BufferedTensors buffered_b = side_b.TensorsLike(like_b);
  Add(buffered_a, buffered_b, tensors_a);
  Add(buffered_b, buffered_a, tensors_b);
  comparison.by_parameter = true;
  return OkStatus();
}

}  // namespace ckpt
