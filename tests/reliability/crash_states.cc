#include "tests/reliability/crash_states.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "core/base/check.h"

namespace ckpt::testing {
namespace {

using Kind = StorageOp::Kind;

constexpr std::uint64_t kSectorBytes = 512;
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::size_t kMaxChangesForAllSets = 5;
constexpr std::size_t kRandomSets = 16;

// A part of an operation that happened: of a write, bytes [begin, end); of others, all.
struct Fragment {
  std::size_t op = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
// What happened, in order, of the pending operations of one file, or of all names.
using Outcome = std::vector<Fragment>;

struct Pending {
  std::vector<bool> is_durable;  // parallel to the operations
  std::map<NodeId, std::vector<std::size_t>> of_file;
  std::vector<std::size_t> of_names;
};

bool IsData(Kind kind) { return kind == Kind::kWrite || kind == Kind::kResize; }

Pending FindPending(std::span<const StorageOp> ops) {
  Pending pending;
  pending.is_durable.assign(ops.size(), false);
  std::set<std::size_t> lost;
  std::map<NodeId, std::vector<std::size_t>> unsynced;
  std::set<NodeId> synced_later;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (IsData(ops[i].kind)) unsynced[ops[i].node].push_back(i);
    if (ops[i].kind == Kind::kFailedSync) {
      for (const std::size_t op : unsynced[ops[i].node]) lost.insert(op);
    }
    if (ops[i].kind != Kind::kSync) continue;
    for (const std::size_t op : unsynced[ops[i].node]) pending.is_durable[op] = !lost.contains(op);
    unsynced[ops[i].node].clear();
  }
  for (std::size_t i = ops.size(); i-- > 0;) {
    const StorageOp& op = ops[i];
    if (op.kind == Kind::kSyncDirectory) {
      synced_later.insert(op.node);
    } else if (IsData(op.kind)) {
      if (!pending.is_durable[i])
        pending.of_file[op.node].insert(pending.of_file[op.node].begin(), i);
    } else if (op.kind == Kind::kSync || op.kind == Kind::kFailedSync) {
      pending.is_durable[i] = true;
    } else {
      const bool moves = op.kind == Kind::kMove || op.kind == Kind::kExchange;
      const bool is_durable =
          synced_later.contains(op.node) && (!moves || synced_later.contains(op.other_node));
      pending.is_durable[i] = is_durable;
      if (!is_durable) pending.of_names.insert(pending.of_names.begin(), i);
    }
  }
  return pending;
}

Outcome Whole(std::span<const StorageOp> ops, std::span<const std::size_t> chosen) {
  Outcome outcome;
  for (const std::size_t op : chosen) outcome.push_back({op, 0, ops[op].bytes.size()});
  return outcome;
}

// The ways to tear one write.
std::vector<Outcome> Torn(const StorageOp& write, std::size_t op) {
  std::vector<Outcome> torn;
  const std::uint64_t length = write.bytes.size();
  const auto first_inside = [&](std::uint64_t unit) { return unit - write.offset % unit; };
  for (std::uint64_t cut = first_inside(kSectorBytes); cut < length; cut += kSectorBytes) {
    torn.push_back({{op, 0, cut}});
    torn.push_back({{op, cut, length}});
  }
  for (std::uint64_t page = first_inside(kPageBytes); page + kPageBytes < length;
       page += kPageBytes) {
    torn.push_back({{op, 0, page}, {op, page + kPageBytes, length}});
  }
  torn.push_back({{op, length, length}});  // the file has grown, and no byte has arrived
  return torn;
}

std::vector<Outcome> OutcomesOfFile(std::span<const StorageOp> ops,
                                    std::span<const std::size_t> pending) {
  std::vector<Outcome> outcomes = {{}};
  for (std::size_t n = 0; n < pending.size(); ++n) {
    const Outcome before = Whole(ops, pending.first(n));
    if (ops[pending[n]].kind == Kind::kWrite) {
      for (const Outcome& torn : Torn(ops[pending[n]], pending[n])) {
        outcomes.push_back(before);
        outcomes.back().insert(outcomes.back().end(), torn.begin(), torn.end());
      }
    }
    outcomes.push_back(Whole(ops, pending.first(n + 1)));
  }
  for (std::size_t n = 0; n + 1 < pending.size(); ++n) {
    Outcome all_but_one = Whole(ops, pending);
    all_but_one.erase(all_but_one.begin() + static_cast<std::ptrdiff_t>(n));
    outcomes.push_back(std::move(all_but_one));
    outcomes.push_back(Whole(ops, pending.subspan(n + 1, 1)));
  }
  return outcomes;
}

std::vector<Outcome> OutcomesOfNames(std::span<const StorageOp> ops,
                                     std::span<const std::size_t> pending, std::mt19937_64& rng) {
  const auto set_of = [&](std::uint64_t bits) {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < pending.size(); ++i) {
      if (((bits >> (i % 64)) & 1) != 0) chosen.push_back(pending[i]);
    }
    return Whole(ops, chosen);
  };
  std::vector<Outcome> outcomes;
  if (pending.size() <= kMaxChangesForAllSets) {
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << pending.size(); ++bits) {
      outcomes.push_back(set_of(bits));
    }
    return outcomes;
  }
  for (std::size_t n = 0; n <= pending.size(); ++n)
    outcomes.push_back(Whole(ops, pending.first(n)));
  for (std::size_t n = 0; n + 1 < pending.size(); ++n) {
    Outcome all_but_one = Whole(ops, pending);
    all_but_one.erase(all_but_one.begin() + static_cast<std::ptrdiff_t>(n));
    outcomes.push_back(std::move(all_but_one));
    outcomes.push_back(Whole(ops, pending.subspan(n + 1, 1)));
  }
  for (std::size_t n = 0; n < kRandomSets; ++n) outcomes.push_back(set_of(rng()));
  return outcomes;
}

// One outcome of each dimension, by position: files first, names last. Position 0 is nothing.
using Combination = std::vector<std::size_t>;

std::vector<Combination> Combine(const std::vector<std::vector<Outcome>>& dimensions,
                                 const std::vector<std::size_t>& everything, std::size_t max_states,
                                 std::mt19937_64& rng) {
  std::size_t product = 1;
  for (const auto& outcomes : dimensions) {
    product = product > max_states ? product : product * outcomes.size();
  }
  std::vector<Combination> combinations;
  const Combination nothing(dimensions.size(), 0);
  if (product <= max_states) {
    Combination at = nothing;
    for (std::size_t n = 0; n < product; ++n) {
      combinations.push_back(at);
      for (std::size_t d = 0; d < at.size() && ++at[d] == dimensions[d].size(); ++d) at[d] = 0;
    }
    return combinations;
  }
  combinations = {nothing, everything};
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    for (std::size_t outcome = 1; outcome < dimensions[d].size(); ++outcome) {
      for (const Combination& others : {nothing, everything}) {
        combinations.push_back(others);
        combinations.back()[d] = outcome;
      }
    }
  }
  if (combinations.size() > max_states) {
    std::shuffle(combinations.begin() + 2, combinations.end(), rng);
    combinations.resize(std::max<std::size_t>(max_states, 1));
  }
  while (combinations.size() < max_states) {
    Combination random;
    for (const auto& outcomes : dimensions) random.push_back(rng() % outcomes.size());
    // What a file without a name holds makes no difference: every other one has all names.
    if (combinations.size() % 2 == 0) random.back() = everything.back();
    combinations.push_back(std::move(random));
  }
  return combinations;
}

bool ApplyFragment(const StorageOp& op, const Fragment& fragment, DiskImage& image) {
  const bool is_whole = fragment.begin == 0 && fragment.end == op.bytes.size();
  if (op.kind != Kind::kWrite || is_whole) return image.Apply(op);
  const auto at = [&op](std::uint64_t n) {
    return op.bytes.begin() + static_cast<std::ptrdiff_t>(n);
  };
  return image.Apply({.kind = Kind::kWrite,
                      .node = op.node,
                      .offset = op.offset + fragment.begin,
                      .bytes = Bytes(at(fragment.begin), at(fragment.end))});
}

}  // namespace

std::size_t ForEachCrashState(const DiskImage& start, std::span<const StorageOp> ops,
                              const CrashStateOptions& options,
                              const std::function<void(const DiskImage&)>& visit) {
  std::mt19937_64 rng(options.seed ^ ops.size());
  const Pending pending = FindPending(ops);
  std::vector<std::vector<Outcome>> dimensions;
  std::vector<std::size_t> everything;
  const auto add = [&](std::vector<Outcome> outcomes, std::span<const std::size_t> all) {
    const auto is_all = [&](const Outcome& outcome) {
      return outcome.size() == all.size() &&
             std::all_of(outcome.begin(), outcome.end(), [&](const Fragment& fragment) {
               return fragment.begin == 0 && fragment.end == ops[fragment.op].bytes.size();
             });
    };
    const auto it = std::find_if(outcomes.begin(), outcomes.end(), is_all);
    everything.push_back(static_cast<std::size_t>(it - outcomes.begin()));
    dimensions.push_back(std::move(outcomes));
  };
  for (const auto& [node, of_file] : pending.of_file) add(OutcomesOfFile(ops, of_file), of_file);
  add(OutcomesOfNames(ops, pending.of_names, rng), pending.of_names);

  // What comes before the first pending operation is the same in every state.
  const auto first_pending = static_cast<std::size_t>(
      std::find(pending.is_durable.begin(), pending.is_durable.end(), false) -
      pending.is_durable.begin());
  DiskImage base = start;
  for (const StorageOp& op : ops.first(first_pending)) CKPT_CHECK(base.Apply(op));

  std::size_t visited = 0;
  for (const Combination& combination : Combine(dimensions, everything, options.max_states, rng)) {
    Outcome happened;
    for (std::size_t d = 0; d < dimensions.size(); ++d) {
      const Outcome& outcome = dimensions[d][combination[d]];
      happened.insert(happened.end(), outcome.begin(), outcome.end());
    }
    std::stable_sort(happened.begin(), happened.end(),
                     [](const Fragment& a, const Fragment& b) { return a.op < b.op; });
    DiskImage image = base;
    bool is_legal = true;
    auto next = happened.begin();
    for (std::size_t i = first_pending; i < ops.size() && is_legal; ++i) {
      if (pending.is_durable[i]) is_legal = image.Apply(ops[i]);
      for (; next != happened.end() && next->op == i && is_legal; ++next) {
        is_legal = ApplyFragment(ops[i], *next, image);
      }
    }
    if (!is_legal) continue;
    ++visited;
    visit(image);
  }
  return visited;
}

}  // namespace ckpt::testing
