#include "tools/ckpt-inspect/object_diff.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/verbs/comparison.h"
#include "core/base/check.h"
#include "core/base/units.h"
#include "core/json/json_copy.h"
#include "core/json/json_reader.h"
#include "core/json/json_writer.h"

namespace ckpt::inspect {
namespace {

// Objects in which a place is looked for. A list of short numbers takes ninety times its text then:
// 180 MiB for each side. Formats read objects of 200 levels (docs/formats/objects.md).
constexpr JsonLimits kSearchLimits = {.max_bytes = 2 * kMiB, .max_depth = 512};
// Of the places of all values in an object, each of which has all keys above it.
constexpr std::size_t kMaxPlacesBytes = 16 * kMiB;

// Whether the places of all values in `json` are short enough to be kept.
bool HasShortPlaces(std::string_view json) {
  std::vector<std::size_t> above = {0};  // of each list or mapping around: the bytes of its place
  std::size_t key = 0;
  std::size_t total = 0;
  for (std::size_t at = 0; at < json.size() && total <= kMaxPlacesBytes; ++at) {
    const char c = json[at];
    if (c == '{' || c == '[') {
      above.push_back(above.back() + key);
      key = 0;
    } else if ((c == '}' || c == ']') && above.size() > 1) {
      above.pop_back();
    } else if (c == ',') {
      key = 0;
      total += above.back();
    } else if (c == '"') {
      const std::size_t begin = at;
      while (++at < json.size() && json[at] != '"') at += json[at] == '\\' ? 1U : 0U;
      const bool is_key = at + 1 < json.size() && json[at + 1] == ':';
      if (!is_key) continue;
      key = at - begin;
      total += above.back() + key;
    }
  }
  return total <= kMaxPlacesBytes;
}

std::string TextOf(const JsonCursor& value) {
  JsonWriter json;
  CKPT_CHECK(CopyJson(value, json).ok());  // no value is asked for as another kind
  return json.Take();
}

// A name as a part of a JSON pointer.
std::string PointerPart(std::string_view name) {
  std::string part = "/";
  for (const char c : name) {
    if (c == '~') {
      part += "~0";
    } else if (c == '/') {
      part += "~1";
    } else {
      part += c;
    }
  }
  return part;
}

// "$tuple" of {"$tuple": […]}; empty if the value is plain.
std::string TagOf(const JsonCursor& value) {
  if (value.kind() != JsonKind::kObject) return {};
  const auto members = value.Members();
  const bool has_tag = members->size() == 1 && members->front().first.starts_with('$');
  return has_tag ? members->front().first : std::string();
}

// A key of a mapping.
struct Member {
  std::string name;
  std::string value_at;
  JsonCursor value;
  // What says the key too, where that is not in the pointer: a pair.
  std::string entry_at = value_at;
  JsonCursor entry = value;
};
using Mapping = std::vector<Member>;

Mapping MembersOf(const JsonCursor& object, const std::string& at) {
  Mapping mapping;
  for (const auto& [name, value] : *object.Members()) {
    mapping.push_back({.name = name, .value_at = at + PointerPart(name), .value = value});
  }
  return mapping;
}

// The pairs in {"$dict": [[key, value], …]}. Nothing if there are none, or if two keys look alike,
// as those of classes do that have no text.
std::optional<Mapping> PairsOf(const JsonCursor& object, std::string_view tag,
                               const std::string& at) {
  if (tag != "$dict" && tag != "$ordered_dict") return std::nullopt;
  const std::optional<JsonCursor> pairs = object.Find(tag);
  if (!pairs || pairs->kind() != JsonKind::kArray) return std::nullopt;
  Mapping mapping;
  std::set<std::string> names;
  for (const JsonCursor& pair : *pairs->Items()) {
    const bool is_pair = pair.kind() == JsonKind::kArray && pair.Items()->size() == 2;
    if (!is_pair) return std::nullopt;
    const std::vector<JsonCursor> parts = *pair.Items();
    std::string name = TextOf(parts[0]);
    if (!names.insert(name).second) return std::nullopt;
    const std::string pair_at = fmt::format("{}/{}/{}", at, tag, mapping.size());
    mapping.push_back({.name = std::move(name),
                       .value_at = pair_at + "/1",
                       .value = parts[1],
                       .entry_at = pair_at,
                       .entry = pair});
  }
  return mapping;
}

// Finds the places at which two values differ. Keys of a mapping may have any order.
class PlaceSearch {
 public:
  // `at` is the place of `a`, or of both.
  void Compare(const JsonCursor& a, const JsonCursor& b, const std::string& at) {
    const std::string tag = TagOf(a);
    if (a.kind() != b.kind() || tag != TagOf(b)) {
      Add(at, a, b);
    } else if (a.kind() == JsonKind::kArray) {
      CompareItems(*a.Items(), *b.Items(), at);
    } else if (a.kind() != JsonKind::kObject) {
      if (TextOf(a) != TextOf(b)) Add(at, a, b);
    } else {
      std::optional<Mapping> pairs_a = PairsOf(a, tag, at);
      std::optional<Mapping> pairs_b = PairsOf(b, tag, at);
      const bool are_pairs = pairs_a && pairs_b;
      CompareMappings(are_pairs ? *std::move(pairs_a) : MembersOf(a, at),
                      are_pairs ? *std::move(pairs_b) : MembersOf(b, at), at);
    }
  }

  [[nodiscard]] const std::optional<DifferingPlace>& first() const { return first_; }
  [[nodiscard]] std::int64_t num_places() const { return num_places_; }
  // The first mapping whose keys have another order, or are others.
  [[nodiscard]] const std::optional<std::string>& reordered() const { return reordered_; }

 private:
  void Add(const std::string& at, const std::optional<JsonCursor>& a,
           const std::optional<JsonCursor>& b) {
    if (++num_places_ > 1) return;
    first_.emplace().pointer = at;
    if (a) first_->a = TextOf(*a);
    if (b) first_->b = TextOf(*b);
  }

  void CompareItems(const std::vector<JsonCursor>& a, const std::vector<JsonCursor>& b,
                    const std::string& at) {
    for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      const std::string item_at = fmt::format("{}/{}", at, i);
      if (i >= a.size()) {
        Add(item_at, std::nullopt, b[i]);
      } else if (i >= b.size()) {
        Add(item_at, a[i], std::nullopt);
      } else {
        Compare(a[i], b[i], item_at);
      }
    }
  }

  void CompareMappings(const Mapping& a, const Mapping& b, const std::string& at) {
    if (!reordered_ && !std::ranges::equal(a, b, {}, &Member::name, &Member::name)) reordered_ = at;
    std::map<std::string_view, const Member*> only_b;
    for (const Member& member : b) only_b.emplace(member.name, &member);
    for (const Member& member : a) {
      const auto other = only_b.find(member.name);
      if (other == only_b.end()) {
        Add(member.entry_at, member.entry, std::nullopt);
      } else {
        Compare(member.value, other->second->value, member.value_at);
        only_b.erase(other);
      }
    }
    for (const Member& member : b) {
      if (only_b.contains(member.name)) Add(member.entry_at, std::nullopt, member.entry);
    }
  }

  std::optional<DifferingPlace> first_;
  std::int64_t num_places_ = 0;
  std::optional<std::string> reordered_;
};

// Says of `object` where its texts differ, if they are not too large.
void FindPlaces(DifferingObject& object) {
  if (!HasShortPlaces(object.a) || !HasShortPlaces(object.b)) return;
  const Result<JsonDocument> a = JsonDocument::Parse(object.a, object.key, kSearchLimits);
  const Result<JsonDocument> b = JsonDocument::Parse(object.b, object.key, kSearchLimits);
  if (!a.ok() || !b.ok()) return;
  PlaceSearch search;
  search.Compare(a->root(), b->root(), "");
  object.first = search.first();
  object.num_places = search.num_places();
  if (object.first || !search.reordered()) return;
  object.what = ObjectDifference::kKeyOrder;
  object.first = DifferingPlace{.pointer = *search.reordered()};
}

// Says of `object` which tensor differs first, by their paths, if one does.
void FindDifferentTensor(std::vector<HeldTensor> held_a, std::vector<HeldTensor> held_b,
                         DifferingObject& object) {
  std::ranges::stable_sort(held_a, {}, &HeldTensor::path);
  std::ranges::stable_sort(held_b, {}, &HeldTensor::path);
  const auto [a, b] = std::ranges::mismatch(held_a, held_b);
  const bool has_a = a != held_a.end();
  const bool has_b = b != held_b.end();
  if (!has_a && !has_b) return;
  object.what = ObjectDifference::kTensors;
  object.first.reset();
  if (has_a && (!has_b || a->path <= b->path)) object.tensor_a = *a;
  if (has_b && (!has_a || b->path <= a->path)) object.tensor_b = *b;
}

// REQUIRES: the two do not say the same.
DifferingObject DescribeDifference(const std::string& name, RenderedObject a, RenderedObject b) {
  DifferingObject object{.key = name, .a = std::move(a.json), .b = std::move(b.json)};
  if (object.a != object.b) FindPlaces(object);
  const bool has_same_values = object.a == object.b || object.what == ObjectDifference::kKeyOrder;
  if (has_same_values) FindDifferentTensor(std::move(a.held), std::move(b.held), object);
  return object;
}

std::optional<RenderedObject> RenderForDiff(const CheckpointSource& source,
                                            const ObjectEntry& object,
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
      std::optional<RenderedObject> in_a = RenderForDiff(a, *held.a, diff.unreadable);
      std::optional<RenderedObject> in_b = RenderForDiff(b, *held.b, diff.unreadable);
      if (!in_a || !in_b) continue;
      if (SayTheSame(*in_a, *in_b)) continue;
      diff.different.push_back(DescribeDifference(held.name, *std::move(in_a), *std::move(in_b)));
      break;  // the copies of what differs tell nothing else
    }
  }
  return diff;
}

}  // namespace ckpt::inspect
