// How long ranks take to send each other what a step needs, by the rates of the links between them.
#ifndef CKPT_TRAINER_EXPLAIN_INTERNAL_LINK_TIMES_H_
#define CKPT_TRAINER_EXPLAIN_INTERNAL_LINK_TIMES_H_

#include "trainer/explain/cluster_rates.h"
#include "trainer/mesh/topology.h"
#include "trainer/params/shard_plan.h"

namespace ckpt::train {

// A group of ranks as the links see it: every host has as many of its members.
struct Placed {
  int in_host = 1;
  int hosts = 1;

  [[nodiscard]] int size() const { return in_host * hosts; }
};

Placed PlaceOnHosts(const trainer::Topology& topology, trainer::Group group,
                    const Cluster& cluster);

struct Placements {
  Placed shard;
  Placed expert_shard;
  Placed outer;

  // The ranks that divide `group`.
  [[nodiscard]] const Placed& InnerOf(const trainer::GroupPlan& group) const {
    return group.param_class == trainer::ParamClass::kExpert ? expert_shard : shard;
  }
  // Whether updates write the weights of both ranks: GPUs of one host do.
  [[nodiscard]] bool UpdatesExchange(const trainer::GroupPlan& group) const {
    return group.UpdatesMayExchange() && InnerOf(group).hosts == 1;
  }
};

// In milliseconds.
class LinkTimes {
 public:
  // `cluster` must outlive this.
  explicit LinkTimes(const Cluster& cluster) : cluster_(cluster) {}

  // `bytes`: of the whole array, of which each member has or gets a part.
  [[nodiscard]] double GatherMs(double bytes, const Placed& group) const;
  [[nodiscard]] double ReduceMs(double bytes, const Placed& group) const;
  // Of the parts of all members that a rank adds, and of the sums that it writes.
  [[nodiscard]] double SumMs(double parts_bytes, double sums_bytes) const;
  // Of a gather or a reduction of `bytes`: what it reads and writes of a GPU's own memory is lost
  // to the kernels beside it, which are at the limit of memory or of power. Sums that read the
  // links write nothing there, but hold multiprocessors, and cost a step as much as with copies.
  [[nodiscard]] double CopiesMs(double bytes, const Placed& group) const;
  [[nodiscard]] double AllReduceMs(double bytes, const Placed& group) const;
  // `bytes`: of a rank's tokens, for all members in equal parts.
  [[nodiscard]] double ExchangeMs(double bytes, const Placed& group) const;

 private:
  // What is not communicated has no latency either.
  [[nodiscard]] double CallMs(double seconds, double hops) const;
  // Each host's members bring in the other hosts' bytes together, and share them; both at once.
  [[nodiscard]] double TransferSeconds(double bytes, const Placed& group, double host_rate) const;
  // The hops of a gather or a reduction: a ring through all members, or, with one member a host,
  // NCCL's trees for that case (PAT).
  [[nodiscard]] double Ring(const Placed& group) const;
  // Of a sum that every member gets.
  [[nodiscard]] double Tree(const Placed& group) const;
  static double Depth(const Placed& group);
  [[nodiscard]] double PortBytes() const;

  const Cluster& cluster_;
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_EXPLAIN_INTERNAL_LINK_TIMES_H_
