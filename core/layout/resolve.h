// Resolve: applies a layout table to one configuration. The result is every tensor with its name,
// its shape and the logical elements in it.
#ifndef CKPT_CORE_LAYOUT_RESOLVE_H_
#define CKPT_CORE_LAYOUT_RESOLVE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/layout/layout_table.h"
#include "core/layout/value.h"
#include "core/tensor/shape.h"

namespace ckpt::layout {

// Values of choices by name. A choice that is not listed is free.
using Choices = std::map<std::string, std::string, std::less<>>;

// Where one atomic axis of a logical tensor lies within a segment.
struct AxisPlace {
  static constexpr int kInName = -1;

  std::int64_t extent = 0;
  int dim = kInName;       // a dim of the physical tensor
  std::int64_t step = 0;   // along `dim`
  std::int64_t index = 0;  // the bound number, if `dim` is kInName
};

// Elements of one logical tensor within a physical one. Index (i₀, i₁, …) of the axes lies at
// origin + Σ places[a].step·i_a along places[a].dim.
struct Segment {
  LogicalId logical = 0;  // kZeros: belongs to no logical tensor
  Dims origin;
  std::vector<AxisPlace> places;  // in the order of ResolvedLogical::axes
};

struct ResolvedTensor {
  std::string name;  // without the prefix
  Dims shape;
  std::vector<Segment> segments;  // they tile the shape
  bool derived = false;           // a copy of elements that other tensors hold
  bool expected = false;          // a copy that readers want
  bool is_stripped = false;       // its name lost the prefix that this form strips
};

// Objects under one name, which hold no elements of the model. They lie in a grid; without dims
// there is one.
struct ResolvedObject {
  std::string name;  // without the prefix
  Dims grid;
};

// A logical tensor in this configuration. If it is absent, it has no axes.
struct ResolvedLogical {
  std::string name;
  std::vector<std::string> axes;  // atomic, in canonical order
  Dims shape;
  int presence_axis = -1;      // the axis its condition reads, or -1
  std::vector<bool> presence;  // one per number of that axis, or one entry
  [[nodiscard]] bool IsPresentAnywhere() const;
};

// Immutable value.
struct ResolvedLayout {
  std::string naming;
  std::string prefix;
  Choices choices;
  std::vector<ResolvedLogical> logicals;  // parallel to LayoutTable::logicals
  std::vector<ResolvedTensor> tensors;    // module order: layer by layer, expert by expert
  std::vector<ResolvedObject> objects;    // in the order of the tensors
  std::vector<IgnoreRule> ignores;
  std::string form;        // if names are stripped: what a model of this form is
  bool has_extra = false;  // the model has numbers of LayoutTable::extra

  // The tensor's key in a checkpoint.
  [[nodiscard]] std::string Key(const ResolvedTensor& tensor) const { return prefix + tensor.name; }
};

// Resolves one form: every choice that is not in `choices` takes its first value, and the prefix is
// the first one. Proves that every logical tensor of the configuration lies in the layout exactly
// once.
//
// Errors: kUsage (no such naming, choice or value), kUnsupported (this form cannot hold the model:
// a stacked axis whose layers differ), kBadMetadata (a dim below its minimum or of the wrong kind,
// with its expression; a rule of whose slots only some are present), kResource (sizes or counts
// larger than any model's), kCoverage, kOverlap (the table loses or doubles elements).
Result<ResolvedLayout> ResolveExactly(const LayoutTable& table, std::string_view naming,
                                      const Configuration& config, const Choices& choices);

// The same for a target: takes the first form that agrees with `choices` and can hold the model.
Result<ResolvedLayout> Resolve(const LayoutTable& table, std::string_view naming,
                               const Configuration& config, const Choices& choices = {});

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_RESOLVE_H_
