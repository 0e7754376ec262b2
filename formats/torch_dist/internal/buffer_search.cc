#include "formats/torch_dist/internal/buffer_search.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "formats/torch_dist/internal/module_order.h"

namespace ckpt::torch_dist {
namespace {

// What one rank has in common for all its parameters.
struct Assumption {
  ModuleForm form;
  bool gated = false;
  std::int64_t num_slices = 1;  // the most of any parameter
  std::int64_t slice = 0;

  [[nodiscard]] bool Allows(const LocalParameter& parameter) const {
    if (parameter.may_be_gated && parameter.is_gated != gated) return false;
    // Experts may be divided among fewer ranks.
    return parameter.num_slices == 1 || parameter.num_slices != num_slices ||
           parameter.slice == slice;
  }
  [[nodiscard]] std::optional<ModulePlace> Place(const LocalParameter& parameter) const {
    if (parameter.is_head) return PlaceOfHead();
    return PlaceOf(parameter.name, parameter.layer, parameter.expert, form);
  }
};

// The last step of a way, and up to two ways that lead there.
struct Way {
  BufferPosition begin;
  std::size_t parameter = 0;
  std::optional<ModulePlace> place;  // of the last parameter whose order is known
  std::array<const Way*, 2> before = {};
};

// The layer that a parameter belongs to: the name before its number, and the number.
using Layer = std::pair<std::string, std::int64_t>;
std::optional<Layer> LayerOf(const LocalParameter& parameter) {
  const std::size_t layers = parameter.name.find(".layers.");
  if (layers == std::string::npos) return std::nullopt;
  return Layer(parameter.name.substr(0, layers), parameter.layer);
}

// A stage has whole layers, and of each a matrix that is like no other. So a vector that is equal
// in all layers is of one that is known to be there.
BufferSteps OfKnownLayers(const BufferSteps& steps, std::span<const LocalParameter> parameters) {
  std::set<Layer> known;
  for (const auto& [begin, candidates] : steps) {
    std::set<std::optional<Layer>> layers;
    for (const BufferStep& step : candidates) layers.insert(LayerOf(parameters[step.parameter]));
    if (layers.size() == 1 && *layers.begin()) known.insert(**layers.begin());
  }
  BufferSteps kept = steps;
  for (auto& [begin, candidates] : kept) {
    std::vector<BufferStep> of_known;
    for (const BufferStep& step : candidates) {
      const std::optional<Layer> layer = LayerOf(parameters[step.parameter]);
      if (!layer || known.contains(*layer)) of_known.push_back(step);
    }
    // Where vectors have a buffer of their own, no layer is known.
    if (!of_known.empty()) candidates = std::move(of_known);
  }
  return kept;
}

// Ways by where they end.
using Ways = std::map<BufferPosition, std::deque<Way>>;

// Adds a step to those that reach a position.
void AddWay(Way way, std::deque<Way>& reached) {
  const auto same = std::ranges::find_if(reached, [&](const Way& other) {
    return other.parameter == way.parameter && other.place == way.place;
  });
  if (same == reached.end()) {
    reached.push_back(way);
  } else {
    same->before[1] = way.before[0];
  }
}

Ways FindWays(const BufferSteps& steps, std::span<const LocalParameter> parameters,
              const Assumption& assumption) {
  Ways ways;
  for (const auto& [begin, candidates] : steps) {
    const bool is_first = begin == BufferPosition();
    const auto reached = ways.find(begin);
    if (!is_first && reached == ways.end()) continue;
    for (const BufferStep& step : candidates) {
      const LocalParameter& parameter = parameters[step.parameter];
      if (!assumption.Allows(parameter)) continue;
      const std::optional<ModulePlace> place = assumption.Place(parameter);
      std::deque<Way>& next = ways[step.next];
      if (is_first) {
        AddWay({.begin = begin, .parameter = step.parameter, .place = place}, next);
        continue;
      }
      for (const Way& way : reached->second) {
        // The buffer has the last parameter first.
        if (place && way.place && !(*place < *way.place)) continue;
        AddWay({.begin = begin,
                .parameter = step.parameter,
                .place = place ? place : way.place,
                .before = {&way, nullptr}},
               next);
      }
    }
  }
  return ways;
}

using Order = std::vector<PlacedParameter>;

// Back to the begin. `turn`: takes the second way where there are two for the first time.
Order Follow(const Way& last, bool turn) {
  Order order;
  for (const Way* way = &last; way != nullptr;) {
    order.push_back({.begin = way->begin, .parameter = way->parameter});
    const bool turns = turn && way->before[1] != nullptr;
    way = way->before[turns ? 1 : 0];
    if (turns) turn = false;
  }
  std::ranges::reverse(order);
  return order;
}

// Whether the same parts of weights lie in the same places. A tied embedding and its copy as the
// head are the same.
bool IsSame(const Order& one, const Order& other, std::span<const LocalParameter> parameters) {
  return std::ranges::equal(one, other, [&](const PlacedParameter& a, const PlacedParameter& b) {
    const LocalParameter& first = parameters[a.parameter];
    const LocalParameter& second = parameters[b.parameter];
    return a.begin == b.begin && first.weight == second.weight && first.boxes == second.boxes;
  });
}

// Up to two orders that the assumption leaves open.
std::vector<Order> FindOrders(const BufferSteps& steps, BufferPosition end,
                              std::span<const LocalParameter> parameters,
                              const Assumption& assumption) {
  std::vector<Order> orders;
  Ways ways = FindWays(steps, parameters, assumption);
  for (const Way& way : ways[end]) {
    orders.push_back(Follow(way, false));
    Order other = Follow(way, true);
    if (!IsSame(other, orders.back(), parameters)) orders.push_back(std::move(other));
    if (orders.size() > 1) break;
  }
  return orders;
}

// The tensor ranks, by the slices that their parameters are, if the model is gated or not.
void AddAssumptions(std::span<const LocalParameter> parameters, bool gated,
                    std::vector<Assumption>& assumptions) {
  std::int64_t num_slices = 1;
  std::set<std::int64_t> slices = {0};
  for (const LocalParameter& parameter : parameters) {
    if (parameter.may_be_gated && parameter.is_gated != gated) continue;
    if (parameter.num_slices > num_slices) slices.clear();
    num_slices = std::max(num_slices, parameter.num_slices);
    if (parameter.num_slices == num_slices) slices.insert(parameter.slice);
  }
  for (const std::int64_t slice : slices) {
    for (const bool norm_in_projection : {false, true}) {
      for (const bool experts_one_by_one : {false, true}) {
        assumptions.push_back({.form = {.norm_in_projection = norm_in_projection,
                                        .experts_one_by_one = experts_one_by_one},
                               .gated = gated,
                               .num_slices = num_slices,
                               .slice = slice});
      }
    }
  }
}

std::string Describe(const LocalParameter& parameter) {
  return fmt::format("{} {}", parameter.weight->key, FormatBox(parameter.boxes.front()));
}

Status RefuseBoth(const Order& one, const Order& other,
                  std::span<const LocalParameter> parameters) {
  const auto [a, b] = std::ranges::mismatch(one, other);
  const PlacedParameter& first = a == one.end() ? one.back() : *a;
  const PlacedParameter& second = b == other.end() ? other.back() : *b;
  return Error(ErrorKind::kUnsupported, "two parameters fit the same place in the buffer")
      .Expected("one parameter whose weight its exact values round to")
      .Actual(fmt::format(
          "{}, {}, at element {} of bucket {}", Describe(parameters[first.parameter]),
          Describe(parameters[second.parameter]), first.begin.elem, first.begin.bucket));
}

}  // namespace

Result<std::vector<PlacedParameter>> FindOrder(const BufferSteps& all_steps, BufferPosition end,
                                               std::span<const LocalParameter> parameters) {
  const BufferSteps steps = OfKnownLayers(all_steps, parameters);
  std::vector<Assumption> assumptions;
  AddAssumptions(parameters, true, assumptions);
  AddAssumptions(parameters, false, assumptions);
  std::optional<Order> found;
  for (const Assumption& assumption : assumptions) {
    for (Order& order : FindOrders(steps, end, parameters, assumption)) {
      if (!found) {
        found = std::move(order);
      } else if (!IsSame(*found, order, parameters)) {
        return RefuseBoth(*found, order, parameters);
      }
    }
  }
  if (found) return *std::move(found);
  return Error(ErrorKind::kNotFound, "no order of the model's parameters fits the buffer");
}

}  // namespace ckpt::torch_dist
