// Where the entries of a checkpoint stood in the nested Python object that was saved.
#ifndef CKPT_CORE_CHECKPOINT_ENTRY_PATHS_H_
#define CKPT_CORE_CHECKPOINT_ENTRY_PATHS_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace ckpt {

// A key of a mapping that is an integer: an optimizer of torch numbers its parameters.
struct NumberKey {
  std::int64_t number = 0;

  friend auto operator<=>(const NumberKey&, const NumberKey&) = default;
};

// A key of a mapping that is one of Python's constants.
enum class ConstantKey : std::uint8_t { kNone, kFalse, kTrue };

// What Python keeps beside the values of a mapping: `_metadata` of a module's state_dict().
struct AttributeName {
  std::string name;

  friend auto operator<=>(const AttributeName&, const AttributeName&) = default;
};

// One step into nested containers: a key of a mapping, an integer, a constant or else as Python's
// str, an attribute of it, or a position in a list.
using PathStep = std::variant<std::string, NumberKey, ConstantKey, AttributeName, std::int64_t>;
using EntryPath = std::vector<PathStep>;
// By the keys of tensors and objects.
using EntryPaths = std::map<std::string, EntryPath>;

// The same places for formats whose keys are texts.
[[nodiscard]] EntryPath WithTextKeys(EntryPath path);

// The steps, joined with points: the key that torch gives the entry.
[[nodiscard]] std::string JoinSteps(const EntryPath& path);

// Whether the places stay apart where keys are texts: no two mappings, such as those under 0 and
// "0" or True and "True", become one, and each key is JoinSteps of its path, by which torch looks
// for the entry.
[[nodiscard]] bool StayApartAsTexts(const EntryPaths& paths);

// Whether a loader can make it: a key of the outermost mapping, and no position that was made to
// exhaust memory.
[[nodiscard]] bool IsPlace(const EntryPath& path);

// Whether the object that a loader makes of the paths has every entry: none is where another one
// is, or below it, no container is mapping and list at once, the outermost one is a mapping, and no
// list is so long that it was made to exhaust memory.
[[nodiscard]] bool MakeOneObject(const EntryPaths& paths);

// The lists, by their places, in which torch does not find all entries again. It makes the object
// of the paths and looks up every leaf of it: in vain for a position that no path names, and for a
// list as a whole, which it does not take apart if neither a tensor nor a mapping is in it or in
// lists within it. `is_tensor` says so of a key.
[[nodiscard]] std::set<EntryPath> ListsLostToTorch(
    const EntryPaths& paths, const std::function<bool(const std::string& key)>& is_tensor);

// Makes mappings of these lists, whose keys are the positions as texts: JoinSteps of a path stays
// the same.
void MakeMappings(const std::set<EntryPath>& lists, EntryPaths& paths);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_ENTRY_PATHS_H_
