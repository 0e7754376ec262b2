// How fast ranks gather weights and reduce gradients: bytes that a rank receives in a second, alone
// and while it computes products. Prints one JSON document. Ranks are threads (--ranks), or
// processes under mpirun.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/base/status.h"
#include "core/json/json_writer.h"
#include "trainer/backend/backend.h"
#include "trainer/comm/world.h"
#include "trainer/device/collectives.h"
#include "trainer/ops/ops.h"

namespace ckpt {
namespace {

using namespace trainer;  // NOLINT(google-build-using-namespace): this file is about nothing else

using Clock = std::chrono::steady_clock;

const std::map<std::string, GpuCollectives> kCollectives = {{"auto", GpuCollectives::kAuto},
                                                            {"peer", GpuCollectives::kPeer},
                                                            {"nccl", GpuCollectives::kNccl}};

struct Settings {
  std::string device = "cuda";
  std::string collectives = "auto";  // one of kCollectives
  int ranks = 0;
  int calls = 20;
  std::vector<std::int64_t> mebibytes = {16, 64, 256};  // of the whole array, bfloat16
  std::int64_t product = 8192;                          // rows and columns of the products
  bool registers = true;
};

// One kind of call, in GB/s that a rank receives.
struct MoveSpeed {
  const char* name;
  std::function<void()> call;
  double alone = 0;
  double beside = 0;  // while products run
};

struct Speeds {
  std::int64_t size_bytes = 0;
  std::vector<MoveSpeed> moves;
  double product_ms = 0;         // alone
  double product_beside_ms = 0;  // while calls run; those of the kind that slows them most
};

// Arrays of one size, and the calls that are timed.
class Timing {
 public:
  Timing(const Settings& settings, const Backend& backend, HostGroup& world, Collectives& all)
      : settings_(settings),
        device_(*backend.device),
        ops_(*backend.ops),
        world_(world),
        all_(all),
        moves_(device_.MakeQueue("moves")),
        computes_(device_.MakeQueue("computes")) {}

  Result<Speeds> Run(std::int64_t size_bytes);
  // Waits until no rank reads this rank's memory.
  Status End() {
    all_.AwaitReaders(*moves_, all_.num_calls());
    CKPT_RETURN_IF_ERROR(moves_->Synchronize());
    CKPT_RETURN_IF_ERROR(computes_->Synchronize());
    return world_.Barrier();
  }

 private:
  // Seconds of `count` times `body()` on `queue`, all ranks together.
  template <typename Body>
  Result<double> Time(Queue& queue, int count, const Body& body) {
    CKPT_RETURN_IF_ERROR(queue.Synchronize());
    CKPT_RETURN_IF_ERROR(world_.Barrier());
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < count; ++i) body();
    CKPT_RETURN_IF_ERROR(queue.Synchronize());
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  Result<Tensor> Allocate(DType dtype, std::int64_t elems, std::vector<Buffer>& held) {
    const std::uint64_t size_bytes = static_cast<std::uint64_t>(elems) * ElementBytes(dtype);
    CKPT_ASSIGN_OR_RETURN(Buffer buffer, device_.Allocate(size_bytes, MemoryUse::kOther));
    if (settings_.registers) all_.Register(buffer);
    held.push_back(std::move(buffer));
    return Tensor(held.back().data(), dtype, {elems});
  }
  // A square matrix.
  Result<Tensor> AllocateFactor(std::vector<Buffer>& held) {
    const std::int64_t rows = settings_.product;
    CKPT_ASSIGN_OR_RETURN(Buffer buffer, device_.Allocate(static_cast<std::uint64_t>(rows * rows) *
                                                              sizeof(std::uint16_t),
                                                          MemoryUse::kOther));
    held.push_back(std::move(buffer));
    return Tensor(held.back().data(), DType::kBfloat16, {rows, rows});
  }

  const Settings& settings_;
  Device& device_;
  Ops& ops_;
  HostGroup& world_;
  Collectives& all_;
  const std::unique_ptr<Queue> moves_;
  const std::unique_ptr<Queue> computes_;
  std::vector<Buffer> held_;
};

Result<Speeds> Timing::Run(std::int64_t size_bytes) {
  const std::int64_t ranks = all_.size();
  const std::int64_t part = size_bytes / 2 / ranks;
  CKPT_ASSIGN_OR_RETURN(const Tensor full, Allocate(DType::kBfloat16, part * ranks, held_));
  // In place, as where ranks keep whole weights: nothing is copied within a GPU.
  const Tensor shard = full.Rows(all_.rank() * part, part);
  CKPT_ASSIGN_OR_RETURN(const Tensor gradients, Allocate(DType::kBfloat16, part * ranks, held_));
  CKPT_ASSIGN_OR_RETURN(const Tensor sums, Allocate(DType::kFloat32, part, held_));
  // In place, too, as the gradients of two ranks are.
  std::vector<Tensor> terms;
  for (int rank = 0; rank < all_.size(); ++rank) {
    if (rank == all_.rank()) {
      terms.push_back(gradients.Rows(rank * part, part));
      continue;
    }
    CKPT_ASSIGN_OR_RETURN(terms.emplace_back(), Allocate(DType::kBfloat16, part, held_));
  }
  constexpr std::int64_t kColumns = 4096;
  CKPT_ASSIGN_OR_RETURN(const Tensor squares, Allocate(DType::kFloat64, part / kColumns, held_));
  const std::vector<ShardRows> rows = {{.columns = kColumns, .squares = squares}};
  std::vector<Buffer> factors;
  CKPT_ASSIGN_OR_RETURN(const Tensor a, AllocateFactor(factors));
  CKPT_ASSIGN_OR_RETURN(const Tensor b, AllocateFactor(factors));
  CKPT_ASSIGN_OR_RETURN(const Tensor d, AllocateFactor(factors));
  // Numbers that cost power, as real ones do.
  std::vector<std::uint16_t> random(static_cast<std::size_t>(a.num_elems()));
  std::uint64_t state = 1;
  for (std::uint16_t& value : random) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    value = static_cast<std::uint16_t>(0x3C00U |
                                       (state >> 48U & 0x83FFU));  // of about 0.01, both signs
  }
  for (const Tensor& factor : {a, b}) device_.CopyFromHost(*computes_, random.data(), factor);
  CKPT_RETURN_IF_ERROR(computes_->Synchronize());

  const auto gathers = [&] { all_.GatherShards(*moves_, shard, full, {}); };
  const auto reduces = [&] {
    all_.ReduceScatterInto(*moves_, gradients, sums, GradWrite::kAdd, {});
    all_.AwaitReaders(*moves_, all_.num_calls());
  };
  const auto reduces_and_squares = [&] {
    all_.ReduceScatterInto(*moves_, gradients, sums, GradWrite::kAdd, rows);
    all_.AwaitReaders(*moves_, all_.num_calls());
  };
  const auto scatters = [&] {
    all_.ScatterParts(*moves_, gradients, terms);
    all_.AwaitReaders(*moves_, all_.num_calls());
  };
  const auto multiplies = [&] { ops_.Gemm(*computes_, {}, a, b, d); };
  Speeds speeds = {.size_bytes = size_bytes,
                   .moves = {{"gather", gathers}, {"reduce", reduces}, {"scatter", scatters}}};
  if (all_.LeavesSquares()) speeds.moves.push_back({"reduce_and_square", reduces_and_squares});
  for (const MoveSpeed& move : speeds.moves) {  // memory of the first calls
    CKPT_RETURN_IF_ERROR(Time(*moves_, 2, move.call).status());
  }
  CKPT_RETURN_IF_ERROR(Time(*computes_, 2, multiplies).status());

  const int calls = settings_.calls;
  const double received = static_cast<double>(size_bytes) * static_cast<double>(ranks - 1) /
                          static_cast<double>(ranks) * calls / 1e9;
  double move_s = 0;  // of the slowest kind
  for (MoveSpeed& move : speeds.moves) {
    CKPT_ASSIGN_OR_RETURN(const double seconds, Time(*moves_, calls, move.call));
    move.alone = received / seconds;
    move_s = std::max(move_s, seconds);
  }
  CKPT_ASSIGN_OR_RETURN(const double product_s, Time(*computes_, calls, multiplies));
  speeds.product_ms = product_s / calls * 1e3;
  // Products that outlast the calls.
  const int products = 2 + static_cast<int>(2 * move_s / (product_s / calls));
  for (MoveSpeed& move : speeds.moves) {
    CKPT_RETURN_IF_ERROR(world_.Barrier());
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < products; ++i) multiplies();
    CKPT_ASSIGN_OR_RETURN(const double seconds, Time(*moves_, calls, move.call));
    move.beside = received / seconds;
    CKPT_RETURN_IF_ERROR(computes_->Synchronize());
    const double all_s = std::chrono::duration<double>(Clock::now() - start).count();
    speeds.product_beside_ms = std::max(speeds.product_beside_ms, all_s / products * 1e3);
  }
  for (MoveSpeed& move : speeds.moves) move.call = nullptr;  // what they refer to ends here
  return speeds;
}

std::string Json(const Settings& settings, int ranks, const std::vector<Speeds>& all) {
  JsonWriter json;
  json.BeginObject().Key("device").Text(settings.device);
  json.Key("collectives").Text(settings.collectives).Key("ranks").Int(ranks);
  json.Key("registered").Bool(settings.registers).Key("sizes").BeginArray();
  for (const Speeds& speeds : all) {
    json.BeginObject().Key("bytes").Int(speeds.size_bytes);
    for (const MoveSpeed& move : speeds.moves) {
      json.Key(std::string(move.name) + "_gb_s").Double(move.alone);
      json.Key(std::string(move.name) + "_beside_products_gb_s").Double(move.beside);
    }
    json.Key("product_ms").Double(speeds.product_ms);
    json.Key("product_beside_calls_ms").Double(speeds.product_beside_ms).End();
  }
  json.End().End();
  return json.Take() + "\n";
}

Status Measure(const Settings& settings) {
  return RunWorld({.num_ranks = settings.ranks}, [&](HostGroup& world) -> Status {
    CKPT_ASSIGN_OR_RETURN(const Backend backend,
                          MakeBackend({.name = settings.device,
                                       .compute = DType::kBfloat16,
                                       .gpu_collectives = kCollectives.at(settings.collectives)},
                                      world));
    CKPT_ASSIGN_OR_RETURN(std::unique_ptr<HostGroup> group, world.Split(0, world.rank()));
    CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<Collectives> all,
                          backend.device->MakeCollectives(std::move(group)));
    std::vector<Speeds> speeds;
    {
      Timing timing(settings, backend, world, *all);
      for (const std::int64_t size : settings.mebibytes) {
        const Result<Speeds> timed = timing.Run(size << 20);
        if (!timed.ok()) return timed.status();
        speeds.push_back(*timed);
      }
      CKPT_RETURN_IF_ERROR(timing.End());
      all->Leave();
    }
    if (world.rank() == 0) std::cout << Json(settings, world.size(), speeds);
    return OkStatus();
  });
}

}  // namespace
}  // namespace ckpt

int main(int argc, char** argv) {
  ckpt::Settings settings;
  CLI::App app{
      "Times gathers and reductions of ranks, reductions that keep the terms or leave squares"};
  app.add_option("--device", settings.device, "What the ranks compute on [cuda]");
  app.add_option("--collectives", settings.collectives, "How GPUs communicate [auto]")
      ->check(CLI::IsMember(ckpt::kCollectives));
  app.add_option("--ranks", settings.ranks, "Threads that are ranks; 0: the processes of mpirun");
  app.add_option("--calls", settings.calls, "Of each kind [20]");
  app.add_option("--mebibytes", settings.mebibytes, "Sizes of the whole arrays [16 64 256]");
  app.add_option("--product", settings.product, "Rows and columns of the products beside [8192]");
  app.add_flag("!--unregistered", settings.registers, "Do not register the memory");
  CLI11_PARSE(app, argc, argv);
  const ckpt::Status status = ckpt::Measure(settings);
  if (status.ok()) return 0;
  std::cerr << status.ToString();
  return 1;
}
