// The numbers that a forecast for a cluster is made of, each with its source.
#ifndef CKPT_TRAINER_EXPLAIN_CLUSTER_RATES_H_
#define CKPT_TRAINER_EXPLAIN_CLUSTER_RATES_H_

#include <cstdint>
#include <string_view>

#include "core/base/result.h"

namespace ckpt::train {

struct Rate {
  double value = 0;
  std::string_view unit;
  std::string_view source;
};

// What one GPU does, and what it exchanges with others of its host. Rates of kernels are those
// within whole steps, where the power limit and other kernels count.
struct GpuRates {
  std::string_view name;
  Rate memory_bytes;
  Rate peak_flops;  // of which MFU is a share
  Rate product_flops;
  Rate expert_product_flops;
  // What products of experts are rounded up to: the rows of an expert, and the same rows where a
  // gradient of weights is a sum over them.
  Rate expert_tile_rows;
  Rate expert_sum_rows;
  Rate attention_flops;           // forward and backward together, causal attention counted at half
  Rate attention_backward_ratio;  // the backward's time, in times of the forward
  // Bytes that passes over memory take in a second.
  Rate norm_bytes;
  Rate query_key_bytes;
  Rate activation_bytes;
  Rate expert_row_bytes;
  Rate loss_bytes;
  Rate square_bytes;
  // What transfers take from the kernels beside them: sums of the ranks' gradients, and copies.
  Rate sum_bytes;
  Rate copy_bytes;  // of this GPU's memory
  Rate update_bytes;
  Rate host_copy_bytes;  // to or from the host's memory, each way at once
  Rate router_seconds;   // of a token in a layer with experts, forward and backward
  Rate gap_seconds;      // of a layer, in which nothing runs
  // Within the host, a GPU's own bytes in a second.
  Rate gather_bytes;
  Rate reduce_bytes;
  Rate exchange_bytes;
  // The latency of a collective is that of a call and of the hops of its ring or its tree, within
  // the host and between hosts.
  Rate call_seconds;
  Rate host_hop_seconds;
  Rate network_hop_seconds;
};

// A network with a port for each GPU.
struct NetworkRates {
  std::string_view name;
  Rate port_bytes;  // of one GPU's port, in one direction
};

struct Cluster {
  GpuRates gpu;
  int gpus_per_host = 1;
  NetworkRates network;  // without a name: one host

  // How many GPUs it may have.
  [[nodiscard]] std::int64_t max_gpus() const;
};

// "h200x8,ib400": eight GPUs a host, each with a port of that network; "h200x8": one host.
// Errors: kUsage (names the GPUs and networks that are known).
Result<Cluster> ParseCluster(std::string_view text);

// Calls `use(name, rate)` for every number of a cluster.
template <typename Use>
void ForEachRate(const Cluster& cluster, const Use& use) {
  const GpuRates& gpu = cluster.gpu;
  use("memory", gpu.memory_bytes);
  use("peak", gpu.peak_flops);
  use("products", gpu.product_flops);
  use("products of experts", gpu.expert_product_flops);
  use("rows of a tile of an expert", gpu.expert_tile_rows);
  use("rows of a step of an expert's sums", gpu.expert_sum_rows);
  use("attention", gpu.attention_flops);
  use("attention, backward over forward", gpu.attention_backward_ratio);
  use("norms", gpu.norm_bytes);
  use("queries and keys", gpu.query_key_bytes);
  use("activations", gpu.activation_bytes);
  use("rows of experts", gpu.expert_row_bytes);
  use("loss", gpu.loss_bytes);
  use("squares of gradients", gpu.square_bytes);
  use("sums of gradients", gpu.sum_bytes);
  use("copies beside kernels", gpu.copy_bytes);
  use("update", gpu.update_bytes);
  use("copies with the host", gpu.host_copy_bytes);
  use("router, a token", gpu.router_seconds);
  use("gaps, a layer", gpu.gap_seconds);
  use("gather in a host", gpu.gather_bytes);
  use("reduce in a host", gpu.reduce_bytes);
  use("exchange in a host", gpu.exchange_bytes);
  use("latency, a call", gpu.call_seconds);
  use("latency, a hop in a host", gpu.host_hop_seconds);
  use("latency, a hop between hosts", gpu.network_hop_seconds);
  if (!cluster.network.name.empty()) use("network port", cluster.network.port_bytes);
}

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_EXPLAIN_CLUSTER_RATES_H_
