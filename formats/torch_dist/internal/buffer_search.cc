#include "formats/torch_dist/internal/buffer_search.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "formats/torch_dist/internal/grouped_states.h"
#include "formats/torch_dist/internal/module_order.h"

namespace ckpt::torch_dist {
namespace {

// What one rank has in common for all its parameters.
struct Assumption {
  ModuleForm form;
  bool joins_experts = false;
  bool gated = false;
  std::int64_t num_slices = 1;  // the most of any parameter
  std::int64_t slice = 0;

  [[nodiscard]] bool Allows(const LocalParameter& parameter) const {
    if (parameter.may_be_gated && parameter.is_gated != gated) return false;
    if (parameter.is_turned != joins_experts && IsOfGroupedExperts(parameter.weight->key)) {
      return false;
    }
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
  std::vector<std::optional<Layer>> layer_of;
  layer_of.reserve(parameters.size());
  for (const LocalParameter& parameter : parameters) layer_of.push_back(LayerOf(parameter));
  std::set<Layer> known;
  for (const auto& [begin, candidates] : steps) {
    std::set<std::optional<Layer>> layers;
    for (const BufferStep& step : candidates) layers.insert(layer_of[step.parameter]);
    if (layers.size() == 1 && *layers.begin()) known.insert(**layers.begin());
  }
  BufferSteps kept = steps;
  for (auto& [begin, candidates] : kept) {
    std::vector<BufferStep> of_known;
    for (const BufferStep& step : candidates) {
      const std::optional<Layer>& layer = layer_of[step.parameter];
      if (!layer || known.contains(*layer)) of_known.push_back(step);
    }
    // Where vectors have a buffer of their own, no layer is known.
    if (!of_known.empty()) candidates = std::move(of_known);
  }
  return kept;
}

// The ways that end at one position, in the order in which they were found. They may be as many as
// the model has equal vectors, at each of as many positions; so none is looked at for each step.
class ReachedWays {
 public:
  [[nodiscard]] const std::deque<Way>& ways() const { return ways_; }

  // One with the same last parameter and place is the same way; it then leads there also from what
  // is before `way`.
  void Add(const Way& way) {
    const auto [known, is_new] = known_.try_emplace({way.parameter, way.place}, ways_.size());
    if (is_new) {
      ways_.push_back(way);
    } else {
      ways_[known->second].before[1] = way.before[0];
    }
  }

 private:
  std::deque<Way> ways_;  // whose elements stay where they are
  std::map<std::pair<std::size_t, std::optional<ModulePlace>>, std::size_t> known_;
};

// The ways that reach a position, by what may follow them. The buffer has the last parameter first.
class Predecessors {
 public:
  // The first and the last of some ways.
  struct Ends {
    const Way* first = nullptr;
    const Way* last = nullptr;
  };

  // REQUIRES: there is a way. `reached` outlives this, and does not change.
  explicit Predecessors(const std::deque<Way>& reached) {
    std::map<std::optional<ModulePlace>, std::size_t> known;
    for (const Way& way : reached) {
      const auto [place, is_new] = known.try_emplace(way.place, of_places_.size());
      if (is_new) of_places_.push_back({.first = &way});
      of_places_[place->second].last = &way;
      if (first_.empty() || IsBefore(*first_.back(), way)) first_.push_back(&way);
    }
    for (auto way = reached.rbegin(); way != reached.rend(); ++way) {
      if (last_.empty() || IsBefore(*last_.back(), *way)) last_.push_back(&*way);
    }
  }

  // Those that a parameter at `place` may follow; null: there is none.
  [[nodiscard]] Ends Of(const ModulePlace& place) const {
    const auto find = [&](const std::vector<const Way*>& rising) {
      const auto found = std::ranges::partition_point(
          rising, [&](const Way* way) { return way->place && *way->place <= place; });
      return found == rising.end() ? nullptr : *found;
    };
    return {.first = find(first_), .last = find(last_)};
  }
  // Those of each place, which a parameter of unknown order may follow, by the first way of each.
  [[nodiscard]] const std::vector<Ends>& OfPlaces() const { return of_places_; }

 private:
  // Whether less may follow `one`: a way without a place comes before any parameter.
  static bool IsBefore(const Way& one, const Way& other) {
    return one.place && (!other.place || *one.place < *other.place);
  }

  // From the front and from the back, each way that more may follow than any before it.
  std::vector<const Way*> first_;
  std::vector<const Way*> last_;
  std::vector<Ends> of_places_;
};

// Ways by where they end.
using Ways = std::map<BufferPosition, ReachedWays>;

Ways FindWays(const BufferSteps& steps, std::span<const LocalParameter> parameters,
              const Assumption& assumption) {
  Ways ways;
  for (const auto& [begin, candidates] : steps) {
    const bool is_first = begin == BufferPosition();
    const auto reached = ways.find(begin);
    if (!is_first && reached == ways.end()) continue;
    std::optional<Predecessors> before;
    if (!is_first) before.emplace(reached->second.ways());
    for (const BufferStep& step : candidates) {
      const LocalParameter& parameter = parameters[step.parameter];
      if (!assumption.Allows(parameter)) continue;
      Way way = {.begin = begin, .parameter = step.parameter, .place = assumption.Place(parameter)};
      const auto add = [&](const Predecessors::Ends& ends) {
        for (const Way* const last : {ends.first, ends.last}) {
          way.before = {last, nullptr};
          ways[step.next].Add(way);
          if (ends.first == ends.last) break;
        }
      };
      if (!before) {
        add({});
      } else if (way.place) {
        const Predecessors::Ends ends = before->Of(*way.place);
        if (ends.first != nullptr) add(ends);
      } else {
        for (const Predecessors::Ends& ends : before->OfPlaces()) {
          way.place = ends.first->place;
          add(ends);
        }
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
    return a.begin == b.begin && first.weight == second.weight && first.boxes == second.boxes &&
           first.is_turned == second.is_turned;
  });
}

// Up to two orders that the assumption leaves open.
std::vector<Order> FindOrders(const BufferSteps& steps, BufferPosition end,
                              std::span<const LocalParameter> parameters,
                              const Assumption& assumption) {
  std::vector<Order> orders;
  Ways ways = FindWays(steps, parameters, assumption);
  for (const Way& way : ways[end].ways()) {
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
  struct Experts {
    bool are_one_by_one = false;
    bool are_joined = false;
  };
  std::vector<Experts> forms = {{}, {.are_one_by_one = true}};
  if (std::ranges::any_of(parameters, &LocalParameter::is_turned)) {
    forms.push_back({.are_joined = true});
  }
  for (const std::int64_t slice : slices) {
    for (const bool norm_in_projection : {false, true}) {
      for (const Experts& experts : forms) {
        assumptions.push_back({.form = {.norm_in_projection = norm_in_projection,
                                        .experts_one_by_one = experts.are_one_by_one},
                               .joins_experts = experts.are_joined,
                               .gated = gated,
                               .num_slices = num_slices,
                               .slice = slice});
      }
    }
  }
}

std::string Describe(const LocalParameter& parameter) {
  return fmt::format("{} {}{}", parameter.weight->key, FormatBox(parameter.boxes.front()),
                     parameter.is_turned ? " as one array of experts" : "");
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
