#include "tests/golden/megatron_notation.h"

#include <optional>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "tests/testing/json_text.h"

namespace ckpt::testing {
namespace {

std::string Differ(const JsonCursor& ours, const JsonCursor& golden) {
  return golden.where() + ": golden " + NormalizedJson(golden).substr(0, 300) + ", ours " +
         NormalizedJson(ours).substr(0, 300);
}

std::string CompareItems(const JsonCursor& ours, const JsonCursor& golden) {
  const auto our_items = ours.Items();
  const auto golden_items = golden.Items();
  if (!our_items.ok() || !golden_items.ok() || our_items->size() != golden_items->size()) {
    return Differ(ours, golden);
  }
  for (std::size_t i = 0; i < golden_items->size(); ++i) {
    std::string difference = DifferenceFromMegatron((*our_items)[i], (*golden_items)[i]);
    if (!difference.empty()) return difference;
  }
  return {};
}

std::string CompareMembers(const JsonCursor& ours, const JsonCursor& golden) {
  const auto our_members = ours.Members();
  const auto golden_members = golden.Members();
  if (!our_members.ok() || our_members->size() != golden_members->size()) {
    return Differ(ours, golden);
  }
  for (const auto& [key, value] : *golden_members) {
    const auto found = ours.Find(key);
    if (!found) return Differ(ours, golden);
    std::string difference = DifferenceFromMegatron(*found, value);
    if (!difference.empty()) return difference;
  }
  return {};
}

std::string CompareText(const std::optional<std::string>& ours, const std::string& golden) {
  return ours == golden ? std::string() : "golden " + golden + ", ours " + ours.value_or("nothing");
}

// The SHA-256 of what Python's json.dumps makes of a tuple of numbers.
std::string CompareLongTuple(const JsonCursor& ours, const JsonCursor& golden) {
  const auto tuple = ours.Find("$tuple");
  if (!tuple) return Differ(ours, golden);
  std::string text = "[";
  const auto items = tuple->Items();
  for (const JsonCursor& item : *items) {
    if (text.size() > 1) text += ", ";
    text += NormalizedJson(item);
  }
  text += "]";
  return CompareText(HashHex(HashAlgorithm::kSha256, AsBytes(text)),
                     golden.Find("sha256_of_json")->Text().value());
}

std::string CompareBytes(const JsonCursor& ours, const JsonCursor& golden) {
  const auto hex = ours.Find("$bytes");
  if (!hex) return Differ(ours, golden);
  const std::string digits = hex->Text().value();
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return CompareText(HashHex(HashAlgorithm::kSha256, bytes),
                     golden.Find("__bytes__")->Text().value());
}

// The class of an object that one or both sides do not open.
std::string CompareClass(const JsonCursor& ours, const std::string& golden_name) {
  std::string name;
  if (const auto opaque = ours.Find("$opaque")) name = opaque->Text().value();
  if (const auto object = ours.Find("$object")) name = object->Find("class")->Text().value();
  const bool is_same = !name.empty() && golden_name.starts_with(name);
  return is_same ? std::string() : CompareText(name, golden_name);
}

}  // namespace

std::string DifferenceFromMegatron(const JsonCursor& ours, const JsonCursor& golden) {
  if (golden.kind() == JsonKind::kArray) return CompareItems(ours, golden);
  // The golden writes integers past 64 bits as they are, which the JSON reader rounds.
  if (const auto big = ours.Find("$int"); big && golden.kind() == JsonKind::kFloat) {
    return std::stod(big->Text().value()) == golden.Double().value() ? std::string()
                                                                     : Differ(ours, golden);
  }
  if (golden.kind() != JsonKind::kObject) {
    return NormalizedJson(ours) == NormalizedJson(golden) ? std::string() : Differ(ours, golden);
  }
  // Containers and values that only change their name.
  const std::vector<std::pair<const char*, const char*>> renamed = {
      {"__tuple__", "$tuple"},   {"__set__", "$set"},   {"__dict__", "$dict"},
      {"__tensor__", "$tensor"}, {"__size__", "$size"}, {"__ndarray__", "$numpy_array"}};
  for (const auto& [theirs, mine] : renamed) {
    const auto golden_value = golden.Find(theirs);
    if (!golden_value) continue;
    const auto our_value = ours.Find(mine);
    return our_value ? DifferenceFromMegatron(*our_value, *golden_value) : Differ(ours, golden);
  }
  for (const char* name : {"Namespace", "SimpleNamespace"}) {
    const auto members = golden.Find("__" + std::string(name) + "__");
    if (!members) continue;
    const auto object = ours.Find("$object");
    return object ? CompareMembers(object->At("state").value(), *members) : Differ(ours, golden);
  }
  if (golden.Find("__long_tuple__")) return CompareLongTuple(ours, golden);
  if (golden.Find("__bytes__")) return CompareBytes(ours, golden);
  if (golden.Find("__bytesio__")) return CompareClass(ours, "_io.BytesIO");
  if (const auto name = golden.Find("__enum__")) return CompareClass(ours, name->Text().value());
  if (const auto name = golden.Find("__other__")) return CompareClass(ours, name->Text().value());
  if (const auto name = golden.Find("__dtype__")) {
    const auto dtype = ours.Find("$dtype");
    return dtype ? CompareText("torch." + dtype->Text().value(), name->Text().value())
                 : Differ(ours, golden);
  }
  return CompareMembers(ours, golden);
}

}  // namespace ckpt::testing
