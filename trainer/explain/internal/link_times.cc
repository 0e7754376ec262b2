#include "trainer/explain/internal/link_times.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "trainer/explain/internal/amounts.h"

namespace ckpt::train {

Placed PlaceOnHosts(const trainer::Topology& topology, trainer::Group group,
                    const Cluster& cluster) {
  const std::vector<int> members = topology.Members(group);
  std::set<int> hosts;
  for (const int member : members) hosts.insert(member / cluster.gpus_per_host);
  const auto num_hosts = static_cast<int>(hosts.size());
  return {.in_host = static_cast<int>(members.size()) / num_hosts, .hosts = num_hosts};
}

double LinkTimes::GatherMs(double bytes, const Placed& group) const {
  return CallMs(TransferSeconds(bytes, group, cluster_.gpu.gather_bytes.value), Ring(group));
}

double LinkTimes::ReduceMs(double bytes, const Placed& group) const {
  return CallMs(TransferSeconds(bytes, group, cluster_.gpu.reduce_bytes.value), Ring(group));
}

double LinkTimes::SumMs(double parts_bytes, double sums_bytes) const {
  return kMs * (parts_bytes + sums_bytes) / cluster_.gpu.sum_bytes.value;
}

double LinkTimes::CopiesMs(double bytes, const Placed& group) const {
  const double read_and_written = 2 * bytes * (group.size() - 1) / group.size();
  return kMs * read_and_written / cluster_.gpu.copy_bytes.value;
}

double LinkTimes::AllReduceMs(double bytes, const Placed& group) const {
  return CallMs(TransferSeconds(bytes, group, cluster_.gpu.reduce_bytes.value) +
                    TransferSeconds(bytes, group, cluster_.gpu.gather_bytes.value),
                std::min(2 * Ring(group), Tree(group)));
}

double LinkTimes::ExchangeMs(double bytes, const Placed& group) const {
  const double part = bytes / group.size();
  const double in_host = part * (group.in_host - 1) / cluster_.gpu.exchange_bytes.value;
  const int others = group.size() - group.in_host;
  const double outside = others == 0 ? 0 : part * others / PortBytes();
  return CallMs(std::max(in_host, outside), group.hosts > 1 ? cluster_.gpu.network_hop_seconds.value
                                                            : cluster_.gpu.host_hop_seconds.value);
}

double LinkTimes::CallMs(double seconds, double hops) const {
  return seconds == 0 ? 0 : kMs * (cluster_.gpu.call_seconds.value + hops + seconds);
}

double LinkTimes::TransferSeconds(double bytes, const Placed& group, double host_rate) const {
  const double in_host = bytes * (group.in_host - 1) / group.in_host / host_rate;
  const double outside =
      group.hosts == 1 ? 0 : bytes * (group.hosts - 1) / group.hosts / group.in_host / PortBytes();
  return std::max(in_host, outside);
}

double LinkTimes::Ring(const Placed& group) const {
  const GpuRates& gpu = cluster_.gpu;
  if (group.in_host == 1) return gpu.network_hop_seconds.value * Depth(group);
  return gpu.host_hop_seconds.value * group.hosts * (group.in_host - 1) +
         gpu.network_hop_seconds.value * (group.hosts - 1);
}

double LinkTimes::Tree(const Placed& group) const {
  const GpuRates& gpu = cluster_.gpu;
  return 2 * (gpu.host_hop_seconds.value * (group.in_host - 1) +
              gpu.network_hop_seconds.value * Depth(group));
}

double LinkTimes::Depth(const Placed& group) { return std::ceil(std::log2(group.hosts)); }

double LinkTimes::PortBytes() const { return cluster_.network.port_bytes.value; }

}  // namespace ckpt::train
