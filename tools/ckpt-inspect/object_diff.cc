#include "tools/ckpt-inspect/object_diff.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "converters/verbs/comparison.h"

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

// What both sides hold of an object, or of a copy of it.
struct Held {
  const ObjectEntry* a = nullptr;
  const ObjectEntry* b = nullptr;
  std::string name;
};

// The object of both sides, and the copies that ranks have of it. As these may hold what is the
// rank's own, a copy stands for that of the same rank alone.
std::vector<Held> Pairs(const CheckpointIndex& a, const ObjectEntry& object,
                        const CheckpointIndex& b, const ObjectEntry& other) {
  std::vector<Held> pairs = {{.a = &object, .b = &other, .name = object.key}};
  const auto copies_a = a.copies(object);
  const auto copies_b = b.copies(other);
  for (std::size_t copy = 0; copy < std::min(copies_a.size(), copies_b.size()); ++copy) {
    pairs.push_back(
        {.a = &copies_a[copy], .b = &copies_b[copy], .name = NameOfCopy(object.key, copy + 1)});
  }
  return pairs;
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
    for (const Held& held : Pairs(a.index(), object, b.index(), *other)) {
      std::optional<RenderedObject> in_a = Render(a, *held.a, diff.unreadable);
      std::optional<RenderedObject> in_b = Render(b, *held.b, diff.unreadable);
      if (!in_a || !in_b) continue;
      if (SayTheSame(*in_a, *in_b)) continue;
      diff.different.push_back({held.name, std::move(in_a->json), std::move(in_b->json)});
      break;  // the copies of what differs tell nothing else
    }
  }
  return diff;
}

}  // namespace ckpt::inspect
