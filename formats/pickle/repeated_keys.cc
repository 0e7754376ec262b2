#include "formats/pickle/repeated_keys.h"

#include <cmath>
#include <span>
#include <unordered_set>
#include <utility>

namespace ckpt::pickle {
namespace {

constexpr std::uint32_t kIncomparable = 0xFFFFFFFF;

// A text that is the same for numbers that Python takes for one key, whatever their types are.
// Empty if that is expensive to find out.
std::string NumberIdentity(const Graph& graph, NodeId key) {
  switch (graph.kind(key)) {
    case NodeKind::kBool:
      return graph.boolean(key) ? "1" : "0";
    case NodeKind::kInt:
      return std::to_string(graph.integer(key));
    case NodeKind::kFloat: {
      const double value = graph.number(key);
      const bool is_integer = std::fabs(value) < 0x1p53 && std::trunc(value) == value;
      return is_integer ? std::to_string(static_cast<std::int64_t>(value)) : std::string();
    }
    default:
      return {};
  }
}

}  // namespace

std::optional<NodeId> RepeatedKeys::FindIn(NodeId dict) {
  const std::span<const NodeId> items = graph_.items(dict);
  if (items.size() < 4) return std::nullopt;
  std::unordered_set<std::uint32_t> seen;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    const std::uint32_t number = NumberOf(items[i]);
    if (number != kIncomparable && !seen.insert(number).second) return items[i];
  }
  return std::nullopt;
}

std::uint32_t RepeatedKeys::NumberOf(NodeId key) {
  std::uint32_t& number = numbers_[key];
  if (number != 0) return number;
  const auto next = static_cast<std::uint32_t>(texts_.size() + values_.size() + 1);
  if (graph_.kind(key) == NodeKind::kText) {
    number = texts_.try_emplace(graph_.text(key), next).first->second;
  } else {
    std::string identity = NumberIdentity(graph_, key);
    number = identity.empty() ? kIncomparable
                              : values_.try_emplace(std::move(identity), next).first->second;
  }
  return number;
}

}  // namespace ckpt::pickle
