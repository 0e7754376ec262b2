// Finds the entries of a pickled object, tensors and others, and names each by its path.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_ENTRY_WALK_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_ENTRY_WALK_H_

#include <cstddef>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/entry_paths.h"
#include "formats/pickle/graph.h"
#include "formats/torch_save/tensor_rebuild.h"

namespace ckpt::torch_save {

// Nodes that are one entry each, whatever they hold.
using WholeNodes = std::unordered_set<pickle::NodeId>;

struct NamedNode {
  std::string key;  // empty: the root itself
  pickle::NodeId node = pickle::kNoNode;
  TensorForm form = TensorForm::kNone;  // kNone: a call that no honest checkpoint asks for, or:
  bool is_value = false;                // neither a tensor nor such a call
  bool is_attribute = false;            // a value beside those of a mapping
  EntryPath path = {};                  // filled by FindPaths alone
};

// Containers whose entries were named although their class is none of dict, OrderedDict, list and
// tuple. What else they keep, no entry says.
struct OwnClasses {
  pickle::NodeId first = pickle::kNoNode;
  std::string first_key = {};
  std::size_t count = 0;  // by the places where they stand
};

struct Entries {
  std::vector<NamedNode> list;
  std::vector<NamedNode> attributes = {};
  OwnClasses own_classes = {};
  bool has_values = true;  // false: they are more than can be listed
};

// Walks mappings (keys by Python's str), lists and tuples (positions) below `root`, and a pickled
// nn.Module as its state_dict() does: parameters, persistent buffers, submodules. Path elements are
// joined with '.'. Where two paths are the same text then (`{"a.b": …}` beside `{"a": {"b": …}}`, a
// key 1 beside "1"), both are written as Python would subscript them: `['a.b']`, `['a']['b']`. In
// order of the walk; the same tensor under two paths is named twice; a container that contains
// itself is a value there. Calls that pickle::IsHarmlessCall does not know are named too.
//
// Errors: kResource (more names, or more ways to them, than a checkpoint can have: shared
// containers that multiply), kBadMetadata (a dict with the same key twice).
Result<std::vector<NamedNode>> FindTensors(const pickle::Graph& graph, pickle::NodeId root);

// FindTensors, and values: those that torch's DCP would write as objects of their own. Whatever a
// mapping has under a key; a list that holds neither mappings nor tensors, and any other object
// that holds no tensors, as a whole. Two things differ: an empty mapping is a value, and one of
// more than 10,000 values and nothing else is one value. An nn.Module has no values. Of `whole`
// each is a value. Attributes are those of each OrderedDict that holds an entry, named
// `model._metadata` or `['model']._metadata`.
Result<Entries> FindEntries(const pickle::Graph& graph, pickle::NodeId root,
                            const WholeNodes& whole = {});

// Where the entries and attributes of FindEntries stand. An nn.Module counts as its state_dict,
// which is one mapping; a tuple counts as a list, and a root that is a sequence as a mapping of its
// positions. The root itself stands nowhere. Errors: those of FindEntries, kResource also where
// that goes on without values.
Result<EntryPaths> FindPaths(const pickle::Graph& graph, pickle::NodeId root,
                             const WholeNodes& whole = {});

// The nodes at these places; a place that is not there has none.
WholeNodes NodesAt(const pickle::Graph& graph, pickle::NodeId root,
                   std::span<const EntryPath> places);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_ENTRY_WALK_H_
