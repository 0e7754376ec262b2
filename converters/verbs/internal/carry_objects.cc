#include "converters/verbs/internal/carry_objects.h"

#include <algorithm>
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

#include "core/base/counted.h"
#include "core/base/glob.h"
#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/base/warning.h"
#include "core/base/wildcard.h"
#include "core/checkpoint/entry_paths.h"
#include "core/checkpoint/read.h"
#include "core/json/json_reader.h"
#include "core/json/json_writer.h"
#include "core/layout/layout_table.h"

namespace ckpt {
namespace {

// Of tensors that go along with a run: numbers of a scheduler, states of random generators. The
// plan has their elements.
constexpr std::uint64_t kMaxCarriedTensors = 16 * kMiB;
// For one thread that reads such a tensor.
constexpr std::uint64_t kReadBudget = kMiB;

// Why tensors of the source are left out. Objects that are left out for one of these reasons
// describe them, such as an optimizer's settings without its moments: without them they say that
// the target holds what it does not.
std::set<std::string> WhyTensorsStayBehind(const ModelSource& model) {
  std::set<std::string> whys;
  if (!model.family) return whys;
  for (const LeftOutEntry& entry : model.left_out) {
    if (model.source().index().FindTensor(entry.key) != nullptr) whys.insert(entry.why);
  }
  return whys;
}

Status ShowsAll(const RenderedObject& object) {
  if (!object.hides_attributes) return OkStatus();
  return Error(ErrorKind::kUnsupported, "a mapping in it has attributes, which no text shows");
}

// Whether the target can hold the object, by its text or else itself: a text names tensors and
// instances of many classes, and does not say what they hold.
Status FitObject(const Format& target, const CheckpointSource& source, const ObjectEntry& object,
                 const Status& text_shows_all, CarriedObject& carried) {
  if (target.check_object == nullptr) return OkStatus();
  Status by_text = text_shows_all.ok() ? target.check_object(carried) : text_shows_all;
  if (by_text.ok()) return by_text;
  Result<std::optional<PickledObject>> pickled = source.ReadPickled(object);
  if (!pickled.ok()) return std::move(pickled).status();
  if (!*pickled) return by_text;
  carried.pickled = *std::move(pickled);
  return target.check_object(carried);
}

// The first object that a pattern renames although none of those that it matches is in the target;
// null: there is none, or the pattern renames tensors.
const LeftOutEntry* FindRenamedInVain(const std::string& from, const ModelSource& model) {
  const auto matches = [&](const auto& entry) {
    return Rewrite(from, from, entry.key).has_value();
  };
  const CheckpointIndex& index = model.source().index();
  if (std::ranges::any_of(index.tensors(), matches)) return nullptr;
  const LeftOutEntry* first = nullptr;
  std::ptrdiff_t left_out = 0;
  for (const LeftOutEntry& entry : model.left_out) {
    if (index.FindObject(entry.key) == nullptr || !matches(entry)) continue;
    if (first == nullptr) first = &entry;
    ++left_out;
  }
  return left_out == std::ranges::count_if(index.objects(), matches) ? first : nullptr;
}

// Reads the object of `carried`. Errors: of reading it, and those of FitObject.
Status FitRead(const Format& target, const CheckpointSource& source, const ObjectEntry& object,
               CarriedObject& carried) {
  CKPT_ASSIGN_OR_RETURN(RenderedObject rendered, source.ReadObject(object));
  carried.type = std::move(rendered.type);
  carried.json = std::move(rendered.json);
  return FitObject(target, source, object, ShowsAll(rendered), carried);
}

// Whether it is the `_metadata` of modules that are all of the first version. Where nothing is
// said, a module of torch takes its entries for those of its first version.
Result<bool> SaysNothing(const CheckpointSource& source, const ObjectEntry& attribute) {
  if (attribute.key != "_metadata" && !attribute.key.ends_with("._metadata")) return false;
  CKPT_ASSIGN_OR_RETURN(const RenderedObject read, source.ReadObject(attribute));
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::Parse(read.json, attribute.key));
  const Result<JsonCursor> modules = json.root().At("$ordered_dict");
  if (!modules.ok()) return false;
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> pairs, modules->Items());
  for (const JsonCursor& pair : pairs) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> parts, pair.Items());
    if (parts.size() != 2 || parts[1].kind() != JsonKind::kObject) return false;
    CKPT_ASSIGN_OR_RETURN(const auto members, parts[1].Members());
    if (members.size() != 1 || members.front().first != "version") return false;
    const Result<std::int64_t> version = members.front().second.Int64();
    if (!version.ok() || *version != 1) return false;
  }
  return true;
}

bool KeepsNames(const CheckpointIndex& index, const WeightsRequest& request) {
  return std::ranges::all_of(request.tensors, [&](const TargetTensor& tensor) {
    return index.FindTensor(tensor.key) != nullptr;
  });
}

// Whether the target has an entry of the mapping to which the attribute at `place` belongs, where
// it stood.
bool KeepsMapping(const EntryPath& place, const WeightsRequest& request) {
  if (place.size() == 1) return true;
  const std::span<const PathStep> mapping = std::span(place).first(place.size() - 1);
  return std::ranges::any_of(request.paths, [&](const auto& entry) {
    return std::ranges::mismatch(mapping, entry.second).in1 == mapping.end();
  });
}

// Whether the places make one object in the target, with all its mappings; they become those that
// it can say.
bool FitPlaces(const Format& target, EntryPaths& paths) {
  if (target.nested_keys == NestedKeys::kTexts) {
    if (!StayApartAsTexts(paths)) return false;
    for (auto& [key, path] : paths) path = WithTextKeys(std::move(path));
  }
  return MakeOneObject(paths);
}

// Views into `objects`.
template <typename Object>
std::set<std::string_view> ObjectKeys(const std::vector<Object>& objects) {
  std::set<std::string_view> keys;
  for (const Object& object : objects) keys.insert(object.key);
  return keys;
}

// Where keys are texts, torch loads the target, and the writer makes mappings of these lists.
// `paths`: of what is written.
void WarnOfLostLists(const Format& target, const EntryPaths& paths,
                     const std::set<std::string_view>& objects, PreparedConversion& prepared) {
  if (target.nested_keys != NestedKeys::kTexts) return;
  const std::set<EntryPath> lists =
      ListsLostToTorch(paths, [&](const std::string& key) { return !objects.contains(key); });
  if (lists.empty()) return;
  prepared.warnings.push_back(Warning(
      ErrorKind::kUnsupported,
      fmt::format("torch finds no list again that has gaps or holds objects alone, so {} {} "
                  "of its positions",
                  Counted(lists.size(), "list"),
                  lists.size() == 1 ? "becomes a mapping" : "become mappings"),
      prepared.model.checkpoint->path.string(), JoinSteps(*lists.begin())));
}

// What the naming says of these entries; what it does not know is not among it.
std::set<std::string_view> ReasonsOf(const std::vector<PickledEntry>& objects,
                                     const ModelSource& model) {
  const std::vector<layout::IgnoreRule>& rules = model.match.layout.ignores;
  std::set<std::string_view> reasons;
  for (const PickledEntry& object : objects) {
    const auto rule = std::ranges::find_if(rules, [&](const layout::IgnoreRule& of_naming) {
      return MatchesGlob(of_naming.pattern, object.key);
    });
    if (rule != rules.end()) reasons.insert(rule->reason);
  }
  return reasons;
}

Result<MemoryTensor> ReadWhole(const CheckpointSource& source, const GlobalTensor& tensor) {
  MemoryTensor whole = {tensor.key, tensor.dtype, tensor.shape,
                        Bytes(NumBytes(tensor.shape, tensor.dtype))};
  CKPT_RETURN_IF_ERROR(ReadBox(source, tensor, WholeBox(tensor.shape), whole.values, kReadBudget));
  return whole;
}

// Takes tensors along that are what the objects of `request` are, such as rates of a scheduler that
// are tensors: these objects are not whole without them. What stays behind is worth reporting then.
Status CarryTensorsBeside(ModelSource& model, RunRequest& request) {
  const std::set<std::string_view> reasons = ReasonsOf(request.carried, model);
  std::uint64_t room = kMaxCarriedTensors;
  std::set<std::string> gone_along;
  for (LeftOutEntry& entry : model.left_out) {
    if (!entry.is_bookkeeping || !reasons.contains(entry.why)) continue;
    const GlobalTensor* const tensor = model.source().index().FindTensor(entry.key);
    if (tensor == nullptr) continue;
    entry.is_bookkeeping = false;
    if (entry.bytes > room) {
      entry.why =
          fmt::format("more than {} of tensors beside the run", FormatByteSize(kMaxCarriedTensors));
      continue;
    }
    Result<MemoryTensor> whole = ReadWhole(model.source(), *tensor);
    if (!whole.ok()) {
      if (IsOfSystem(whole.status().kind())) return std::move(whole).status();
      entry.why = whole.status().first().message;
      continue;
    }
    room -= entry.bytes;
    gone_along.insert(entry.key);
    request.carried_tensors.push_back(*std::move(whole));
  }
  std::erase_if(model.left_out,
                [&](const LeftOutEntry& entry) { return gone_along.contains(entry.key); });
  return OkStatus();
}

}  // namespace

Status CountTextsOfShards(const std::vector<SideText>& texts, ModelSource& model) {
  for (const SideText& text : texts) {
    const ObjectEntry* const object = model.source().index().FindObject(text.name);
    if (object == nullptr) continue;
    CKPT_ASSIGN_OR_RETURN(const RenderedObject read, model.source().ReadObject(*object));
    if (read.json != JsonQuote(text.content)) continue;
    std::erase_if(model.left_out,
                  [&](const LeftOutEntry& entry) { return entry.key == text.name; });
  }
  return OkStatus();
}

Status CarryObjects(const Format& target, const OpenModelOptions& options, ModelSource& model,
                    WeightsRequest& request) {
  std::map<std::string, std::string> reasons;  // of those that stay behind
  const std::set<std::string> of_tensors = WhyTensorsStayBehind(model);
  for (const LeftOutEntry& entry : model.left_out) {
    if (of_tensors.contains(entry.why)) reasons[entry.key] = entry.why;
  }
  for (const ObjectEntry& object : model.source().index().objects()) {
    if (reasons.contains(object.key)) continue;
    const std::optional<std::string> key = KeyInTarget(options, object.key);
    if (!key) {
      reasons[object.key] = kLeftOutOnRequest;
      continue;
    }
    Result<RenderedObject> read = model.source().ReadObject(object);
    if (!read.ok() && read.status().kind() == ErrorKind::kResource) {
      reasons[object.key] = read.status().first().message;
      continue;
    }
    CKPT_ASSIGN_OR_RETURN(RenderedObject rendered, std::move(read));
    const Status shows_all = ShowsAll(rendered);
    CarriedObject carried = {.key = *key,
                             .type = std::move(rendered.type),
                             .json = std::move(rendered.json),
                             .numbers = std::move(rendered.numbers)};
    Status fits = FitObject(target, model.source(), object, shows_all, carried);
    if (!fits.ok() && IsOfSystem(fits.first().kind)) return fits;
    if (fits.ok()) {
      if (target.check_text != nullptr) {
        const Status says_all = shows_all.ok() ? target.check_text(carried) : shows_all;
        if (!says_all.ok()) reasons[object.key] = "as a text alone: " + says_all.first().message;
      }
      request.carried_objects.push_back(std::move(carried));
    } else {
      reasons[object.key] = fits.first().message;
    }
  }
  std::set<std::string_view> objects;
  for (const ObjectEntry& object : model.source().index().objects()) objects.insert(object.key);
  std::erase_if(model.left_out, [&](const LeftOutEntry& entry) {
    return objects.contains(entry.key) && !reasons.contains(entry.key);
  });
  for (LeftOutEntry& entry : model.left_out) {
    if (objects.contains(entry.key)) entry.why = reasons.at(entry.key);
  }
  return OkStatus();
}

Status CheckRenamedObjects(const OpenModelOptions& options, const ModelSource& model,
                           const WeightsRequest& request) {
  for (const LeftOutEntry& entry : model.left_out) {
    const bool is_object = model.source().index().FindObject(entry.key) != nullptr;
    if (!is_object || !options.rename.contains(LiteralPattern(entry.key))) continue;
    const std::optional<std::string> renamed = KeyInTarget(options, entry.key);
    const bool is_carried =
        std::ranges::any_of(request.carried_objects,
                            [&](const CarriedObject& object) { return object.key == renamed; });
    if (is_carried) continue;  // as a text alone
    return Error(ErrorKind::kUsage, "--rename is for an object that the target does not hold")
        .File(model.checkpoint->path.string())
        .Tensor(entry.key)
        .Actual(entry.why);
  }
  for (const auto& [from, to] : options.rename) {
    if (!HasStar(from)) continue;
    const LeftOutEntry* const entry = FindRenamedInVain(from, model);
    if (entry == nullptr) continue;
    return Error(ErrorKind::kUsage,
                 fmt::format("--rename {} is for objects alone, and the target holds none of them",
                             Quote(from)))
        .File(model.checkpoint->path.string())
        .Tensor(entry->key)
        .Actual(entry->why);
  }
  return OkStatus();
}

void KeepPaths(const Format& target, const OpenModelOptions& options, PreparedConversion& prepared,
               WeightsRequest& request) {
  const ModelSource& model = prepared.model;
  EntryPaths known = model.source().Paths();
  if (known.empty()) return;
  const auto keep = [&](const std::string& source, const std::string& key) {
    const auto found = source == key ? known.find(source) : known.end();
    request.paths.emplace(key, found == known.end() ? EntryPath{key} : std::move(found->second));
  };
  for (const StoredTensor& stored : model.stored) {
    keep(model.source().index().tensors()[stored.position].key, stored.key);
  }
  for (const ObjectEntry& object : model.source().index().objects()) {
    if (const auto key = KeyInTarget(options, object.key)) keep(object.key, *key);
  }
  if (FitPlaces(target, request.paths)) {
    EntryPaths written;
    const auto add = [&](const auto& entry) {
      const auto path = request.paths.find(entry.key);
      if (path != request.paths.end()) written.insert(*path);
    };
    std::ranges::for_each(request.tensors, add);
    std::ranges::for_each(request.carried_objects, add);
    return WarnOfLostLists(target, written, ObjectKeys(request.carried_objects), prepared);
  }
  request.paths.clear();
  prepared.warnings.push_back(
      Warning(ErrorKind::kUnsupported,
              "keys of the nested object are the same as text, so the target is one flat mapping",
              model.checkpoint->path.string()));
}

Status KeepCarried(const Format& target, PreparedConversion& prepared, RunRequest& request) {
  if (request.carried.empty()) return OkStatus();
  CKPT_RETURN_IF_ERROR(CarryTensorsBeside(prepared.model, request));
  const EntryPaths known = prepared.model.source().Paths();
  const auto keep = [&](const std::string& key) {
    const auto path = known.find(key);
    if (path != known.end()) request.carried_paths.insert(*path);
  };
  for (const PickledEntry& object : request.carried) keep(object.key);
  for (const MemoryTensor& tensor : request.carried_tensors) keep(tensor.key);
  if (FitPlaces(target, request.carried_paths)) {
    WarnOfLostLists(target, request.carried_paths, ObjectKeys(request.carried), prepared);
    return OkStatus();
  }
  request.carried_paths.clear();
  prepared.warnings.push_back(
      Warning(ErrorKind::kUnsupported,
              "keys of nested objects are the same as text, so what goes along with the run is not "
              "nested as it was",
              prepared.model.checkpoint->path.string()));
  return OkStatus();
}

Status CarryAttributes(const Format& target, ModelSource& model, WeightsRequest& request) {
  const CheckpointSource& source = model.source();
  const std::vector<ObjectEntry> attributes = source.Attributes();
  if (attributes.empty()) return OkStatus();
  const EntryPaths places = source.Paths();
  const bool keeps_names = KeepsNames(source.index(), request);
  for (const ObjectEntry& attribute : attributes) {
    const auto place = places.find(attribute.key);
    std::string why;
    if (!target.keeps_attributes) {
      why = fmt::format("{} keeps nothing beside the values of a mapping", target.name);
    } else if (!keeps_names || place == places.end() || !KeepsMapping(place->second, request)) {
      why = "it tells of tensors where they stood under their old names";
    } else {
      CarriedObject carried = {.key = attribute.key};
      Status fits = FitRead(target, source, attribute, carried);
      if (!fits.ok() && IsOfSystem(fits.first().kind)) return fits;
      if (fits.ok()) {
        request.paths.emplace(attribute.key, place->second);
        request.carried_objects.push_back(std::move(carried));
        continue;
      }
      why = fits.first().message;
    }
    CKPT_ASSIGN_OR_RETURN(const bool says_nothing, SaysNothing(source, attribute));
    if (says_nothing) continue;
    model.left_out.push_back({attribute.key, StoredBytes(source, attribute), std::move(why)});
  }
  return OkStatus();
}

}  // namespace ckpt
