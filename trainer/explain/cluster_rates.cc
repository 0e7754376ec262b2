#include "trainer/explain/cluster_rates.h"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "core/base/text_number.h"

namespace ckpt::train {
namespace {

constexpr std::string_view kBytes = "bytes/s";
constexpr std::string_view kFlops = "FLOP/s";
constexpr std::string_view kSeconds = "s";
constexpr std::string_view kRows = "rows";
// Ledgers of the steps of d1 and of m1 with balanced experts, gradients in bfloat16.
constexpr std::string_view kLedgers = "d1 and m1 together: docs/bench/2026-11-24-cuda-one-gpu.md";
constexpr std::string_view kNewerPasses =
    "d1 and m1 together: docs/bench/2026-11-26-norm-and-heads.md";
constexpr std::string_view kNewerRouter = "m1: docs/bench/2026-11-25-cuda-kernels.md";
constexpr std::string_view kLedgerOfExperts = "m1: docs/bench/2026-11-24-cuda-one-gpu.md";
constexpr std::string_view kTiles = "the kernel's own: trainer/ops/cuda/grouped_products.cu";
constexpr std::string_view kTuning =
    "NCCL's own model of its rings, src/graph/tuning.cc: baseLat and hwLat of Ring/Simple";
constexpr std::int64_t kMaxGpus = 1 << 20;

// Where a page gives milliseconds, the bytes or operations are those that a forecast counts for the
// models it names, and the rate is their quotient.
constexpr std::array kGpus = {GpuRates{
    .name = "h200",
    .memory_bytes = {141e9, "bytes", "data sheet of the H200"},
    .peak_flops = {989e12, kFlops, "data sheet of the H200, bfloat16 without sparsity"},
    .product_flops = {715e12, kFlops, kLedgers},
    .expert_product_flops = {633e12, kFlops, kLedgerOfExperts},
    .expert_tile_rows = {256, kRows, kTiles},
    .expert_sum_rows = {64, kRows, kTiles},
    .attention_flops = {367e12, kFlops, kLedgers},
    .attention_backward_ratio = {3.25, "", kLedgers},
    .norm_bytes = {3.74e12, kBytes, kNewerPasses},
    .query_key_bytes = {3.41e12, kBytes, kNewerPasses},
    .activation_bytes = {4.2e12, kBytes, kLedgers},
    .expert_row_bytes = {3.87e12, kBytes, kLedgerOfExperts},
    .loss_bytes = {4.08e12, kBytes, kNewerPasses},
    .square_bytes = {3.55e12, kBytes, "d1 and m1 together: docs/bench/2026-11-26-cuda.md"},
    .sum_bytes = {2.62e12, kBytes,
                  "m1's 13.0 GB in 4.96 ms: docs/bench/2026-11-25-cuda-two-gpus.md"},
    .copy_bytes = {3.4e12, kBytes,
                   "steps of m1 and m2 on two GPUs less the same without communication: 5.8 and "
                   "11.8 ms for 19.4 and 41.4 GB, docs/bench/2026-11-26-cuda-terms.md"},
    .update_bytes = {4.17e12, kBytes, kLedgers},
    .host_copy_bytes = {55e9, kBytes, "copies from and to page-locked memory, measured"},
    .router_seconds = {6.3e-9, kSeconds, kNewerRouter},
    .gap_seconds = {52e-6, kSeconds, "d1 and m1 together: docs/bench/2026-11-25-cuda-kernels.md"},
    .gather_bytes = {390e9, kBytes,
                     "copies by copy engines between two GPUs over NVLink, both at once, measured"},
    .reduce_bytes = {307e9, kBytes,
                     "a kernel that reads the links and adds, between four GPUs: "
                     "docs/bench/2026-11-26-sums-products-epilogue.md"},
    .exchange_bytes = {272e9, kBytes, "NCCL 2.28.9 between two GPUs over NVLink, measured"},
    .call_seconds = {8.4e-6, kSeconds, kTuning},
    .host_hop_seconds = {3.4e-6, kSeconds, kTuning},
    .network_hop_seconds = {14e-6, kSeconds, kTuning},
}};

// The rates of the links, of which collectives reach nine tenths at best;
// the share is an assumption.
constexpr double kPortShare = 0.9;
constexpr std::array kNetworks = {
    NetworkRates{"ib200", {kPortShare * 25e9, kBytes, "InfiniBand HDR, 200 Gb/s, times 0.9"}},
    NetworkRates{"ib400", {kPortShare * 50e9, kBytes, "InfiniBand NDR, 400 Gb/s, times 0.9"}},
    NetworkRates{"ib800", {kPortShare * 100e9, kBytes, "InfiniBand XDR, 800 Gb/s, times 0.9"}},
};

template <typename Table>
std::string NamesOf(const Table& table) {
  std::string names;
  for (const auto& row : table) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

Status NoSuchCluster(std::string_view text) {
  return Error(ErrorKind::kUsage, "there is no such cluster")
      .Expected(
          fmt::format("GPU x GPUS-A-HOST and a network, as h200x8,ib400; GPUs: {}; networks: {}",
                      NamesOf(kGpus), NamesOf(kNetworks)))
      .Actual(std::string(text));
}

}  // namespace

std::int64_t Cluster::max_gpus() const { return network.name.empty() ? gpus_per_host : kMaxGpus; }

Result<Cluster> ParseCluster(std::string_view text) {
  const std::size_t comma = text.find(',');
  const std::string_view host = text.substr(0, comma);
  const std::size_t times = host.rfind('x');
  if (times == std::string_view::npos) return NoSuchCluster(text);
  Cluster cluster;
  const auto* const gpu = std::ranges::find(kGpus, host.substr(0, times), &GpuRates::name);
  if (gpu == kGpus.end()) return NoSuchCluster(text);
  cluster.gpu = *gpu;
  const std::optional<int> count = ParseNumber<int>(host.substr(times + 1));
  if (!count || *count < 1 || *count > kMaxGpus) return NoSuchCluster(text);
  cluster.gpus_per_host = *count;
  if (comma == std::string_view::npos) return cluster;
  const auto* const network =
      std::ranges::find(kNetworks, text.substr(comma + 1), &NetworkRates::name);
  if (network == kNetworks.end()) return NoSuchCluster(text);
  cluster.network = *network;
  return cluster;
}

}  // namespace ckpt::train
