#include "tools/ckpt-inspect/object_diff.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace ckpt::inspect {
namespace {

std::optional<RenderedObject> Render(const CheckpointSource& source, const ObjectEntry& object,
                                     std::vector<Problem>& problems) {
  Status status = source.index().CheckDeliverable(object.key);
  if (status.ok()) {
    Result<RenderedObject> rendered = source.ReadObject(object);
    if (rendered.ok()) return *std::move(rendered);
    status = std::move(rendered).status();
  }
  status = std::move(status).Tensor(object.key);
  problems.insert(problems.end(), status.problems().begin(), status.problems().end());
  return std::nullopt;
}

bool HoldsSame(const std::vector<HeldTensor>& a, const std::vector<HeldTensor>& b) {
  return std::ranges::equal(a, b, [](const HeldTensor& x, const HeldTensor& y) {
    return x.path == y.path && x.shape == y.shape && x.dtype == y.dtype && x.sha256 == y.sha256;
  });
}

}  // namespace

ObjectDiff DiffObjects(const CheckpointSource& a, const CheckpointSource& b) {
  ObjectDiff diff;
  for (const ObjectEntry& object : b.index().objects()) {
    if (a.index().FindObject(object.key) == nullptr) diff.only_b.push_back(object.key);
  }
  for (const ObjectEntry& object : a.index().objects()) {
    const ObjectEntry* const other = b.index().FindObject(object.key);
    if (other == nullptr) {
      diff.only_a.push_back(object.key);
      continue;
    }
    std::optional<RenderedObject> in_a = Render(a, object, diff.unreadable);
    std::optional<RenderedObject> in_b = Render(b, *other, diff.unreadable);
    if (!in_a || !in_b) continue;
    if (in_a->json == in_b->json && HoldsSame(in_a->held, in_b->held)) continue;
    diff.different.push_back({object.key, std::move(in_a->json), std::move(in_b->json)});
  }
  return diff;
}

}  // namespace ckpt::inspect
