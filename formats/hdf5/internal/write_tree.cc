#include "formats/hdf5/internal/write_tree.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/base/endian.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {

std::uint64_t WriteTree(std::vector<TreeEntry> entries, const Bytes& last, std::uint8_t type,
                        std::size_t fan_out, Tail& tail) {
  const std::size_t node_bytes = 24 + (fan_out + 1) * last.size() + fan_out * 8;
  for (std::uint8_t level = 0;; ++level) {
    std::vector<TreeEntry> nodes;
    const std::size_t num_nodes = std::max<std::size_t>(CeilDiv(entries.size(), fan_out), 1);
    // Siblings name each other, so their places are computed before.
    const std::uint64_t first_at = tail.Add({});
    const std::uint64_t stride = AlignUp(node_bytes, std::size_t{8});
    for (std::size_t n = 0; n < num_nodes; ++n) {
      const std::size_t begin = n * fan_out;
      const std::size_t end = std::min(begin + fan_out, entries.size());
      Bytes node;
      Append(std::string_view("TREE"), node);
      AppendLe(type, node);
      AppendLe(level, node);
      AppendLe(static_cast<std::uint16_t>(end - begin), node);
      AppendLe(n == 0 ? kUndefined : first_at + (n - 1) * stride, node);
      AppendLe(n + 1 == num_nodes ? kUndefined : first_at + (n + 1) * stride, node);
      for (std::size_t e = begin; e < end; ++e) {
        Append(entries[e].key, node);
        AppendLe(entries[e].at, node);
      }
      Append(end < entries.size() ? entries[end].key : last, node);
      node.resize(stride);
      const std::uint64_t at = tail.Add(node);
      CKPT_CHECK(at == first_at + n * stride);
      nodes.push_back({begin < entries.size() ? entries[begin].key : last, at});
    }
    if (nodes.size() == 1) return nodes.front().at;
    entries = std::move(nodes);
  }
}

}  // namespace ckpt::hdf5
