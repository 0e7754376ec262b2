// ModelRunner: a model with all it needs on one rank of the CPU.
#ifndef CKPT_TESTS_TRAINER_MODEL_MODEL_RUNNER_H_
#define CKPT_TESTS_TRAINER_MODEL_MODEL_RUNNER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "tests/testing/device_values.h"
#include "tests/testing/full_params.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/model/model.h"
#include "trainer/ops/cpu/host_ops.h"

namespace ckpt::testing {

struct RunnerOptions {
  DType compute = DType::kFloat64;
  trainer::Recompute recompute = trainer::Recompute::kNone;
  int prefetch_depth = 1;
  std::int64_t loss_chunk_tokens = 4096;
  bool fixed_order = false;
  trainer::HostDeviceOptions device = {};
  std::set<std::string> frozen = {};
  trainer::LossScales scales = {};
  // Puts something around the real operations.
  std::function<std::unique_ptr<trainer::Ops>(trainer::Ops&)> wrap = {};
};

struct TokenBatch {
  std::int64_t batch = 3;
  std::int64_t seq = 8;
  std::vector<double> tokens;
  std::vector<double> labels;
  // As HostMicroBatch has them.
  std::vector<double> positions = {};
  std::vector<double> cu_seqlens = {};
  std::vector<double> lengths = {};
};

// A few labels are not counted.
inline TokenBatch RandomBatch(std::uint64_t seed, std::int64_t vocab, std::int64_t batch = 3,
                              std::int64_t seq = 8) {
  std::mt19937_64 random(seed);
  TokenBatch made{.batch = batch, .seq = seq, .tokens = {}, .labels = {}};
  for (std::int64_t t = 0; t < batch * seq; ++t) {
    const auto draw = [&] {
      return static_cast<double>(random() % static_cast<std::uint64_t>(vocab));
    };
    made.tokens.push_back(draw());
    made.labels.push_back(random() % 5 == 0 ? -1 : draw());
  }
  return made;
}

struct StepValues {
  std::vector<double> losses;
  double aux_loss = 0;
  std::map<std::string, std::vector<double>> gradients;

  [[nodiscard]] double Objective(const trainer::LossScales& scales) const {
    return scales.token * std::accumulate(losses.begin(), losses.end(), 0.0) +
           scales.aux * aux_loss;
  }
  friend bool operator==(const StepValues&, const StepValues&) = default;
};

class ModelRunner {
 public:
  ModelRunner(const trainer::ModelConfig& config, const TokenBatch& batch,
              const RunnerOptions& options = {})
      : options_(options),
        device_(trainer::MakeHostDevice(options.device)),
        host_ops_(trainer::MakeHostOps({.fixed_order = options.fixed_order})),
        wrapper_(options.wrap ? options.wrap(*host_ops_) : nullptr),
        queue_(device_->MakeQueue("compute")) {
    trainer::ModelRuntime runtime;
    runtime.ops = wrapper_ ? wrapper_.get() : host_ops_.get();
    runtime.device = device_.get();
    runtime.queue = queue_.get();
    runtime.compute = options.compute;
    runtime.recompute = options.recompute;
    runtime.prefetch_depth = options.prefetch_depth;
    runtime.loss_chunk_tokens = options.loss_chunk_tokens;
    auto model = trainer::Model::Create(config, runtime);
    CKPT_CHECK(model.ok());
    model_ = std::move(*model);
    const bool is_double = options.compute == DType::kFloat64;
    statistics_ = is_double ? DType::kFloat64 : DType::kFloat32;
    params_ = std::make_unique<FullParams>(
        *device_, *queue_, model_->units(),
        FullParamsOptions{
            .weights = options.compute, .gradients = statistics_, .frozen = options.frozen});
    SetBatch(batch);
  }

  [[nodiscard]] trainer::Model& model() { return *model_; }
  [[nodiscard]] FullParams& params() { return *params_; }
  [[nodiscard]] std::vector<double> Read(const trainer::Tensor& tensor) {
    return ReadValues(*device_, *queue_, tensor);
  }
  void Write(const std::vector<double>& values, const trainer::Tensor& tensor) {
    WriteValues(*device_, *queue_, values, tensor);
  }

  void SetBatch(const TokenBatch& batch) {
    const std::int64_t tokens = batch.batch * batch.seq;
    batch_ = {.tokens = Allocate(DType::kInt32, tokens),
              .labels = Allocate(DType::kInt32, tokens),
              .batch = batch.batch,
              .seq = batch.seq};
    const auto put = [&](const std::vector<double>& values) -> trainer::Tensor {
      if (values.empty()) return {};
      const trainer::Tensor to = Allocate(DType::kInt32, static_cast<std::int64_t>(values.size()));
      Write(values, to);
      return to;
    };
    batch_.layout = {
        .positions = put(batch.positions),
        .examples = {.cu_seqlens = put(batch.cu_seqlens), .lengths = put(batch.lengths)},
        .num_padding = std::count(batch.positions.begin(), batch.positions.end(), -1.0)};
    Write(batch.tokens, batch_.tokens);
    Write(batch.labels, batch_.labels);
    losses_ = Allocate(statistics_, tokens);
    aux_loss_ = Allocate(statistics_, 1);
  }

  // One micro-batch; gradients are added to those in `params`.
  void ForwardBackward() {
    CKPT_CHECK(model_->ForwardBackward(*params_, batch_, options_.scales, losses_, aux_loss_).ok());
  }
  // One micro-batch from gradients and auxiliary losses of 0.
  StepValues Step() {
    params_->ClearGradients();
    Write({0}, aux_loss_);
    ForwardBackward();
    return {.losses = Read(losses_),
            .aux_loss = Read(aux_loss_)[0],
            .gradients = params_->ReadGradients()};
  }
  // What the gradients of a step are gradients of.
  double Objective() {
    Write({0}, aux_loss_);
    ForwardBackward();
    return StepValues{.losses = Read(losses_), .aux_loss = Read(aux_loss_)[0], .gradients = {}}
        .Objective(options_.scales);
  }
  // Losses of a forward pass alone, and the logits if there is somewhere to put them.
  std::vector<double> Evaluate(std::vector<double>* logits = nullptr) {
    trainer::Tensor values;
    if (logits != nullptr) {
      const std::int64_t columns = model_->config().padded_vocab_size;
      values = Allocate(options_.compute, batch_.batch * batch_.seq * columns)
                   .Reshape({batch_.batch * batch_.seq, columns});
    }
    CKPT_CHECK(model_->Forward(*params_, batch_, losses_, values).ok());
    if (logits != nullptr) *logits = Read(values);
    return Read(losses_);
  }

 private:
  trainer::Tensor Allocate(DType dtype, std::int64_t elems) {
    auto buffer = device_->Allocate(static_cast<std::uint64_t>(elems) * ElementBytes(dtype),
                                    trainer::MemoryUse::kOther);
    CKPT_CHECK(buffer.ok());
    buffers_.push_back(std::move(*buffer));
    return trainer::Tensor(buffers_.back().data(), dtype, {elems});
  }

  const RunnerOptions options_;
  const std::unique_ptr<trainer::Device> device_;
  std::vector<trainer::Buffer> buffers_;
  const std::unique_ptr<trainer::Ops> host_ops_;
  const std::unique_ptr<trainer::Ops> wrapper_;
  std::unique_ptr<trainer::Model> model_;
  std::unique_ptr<FullParams> params_;
  DType statistics_ = DType::kFloat32;
  trainer::MicroBatch batch_;
  trainer::Tensor losses_;
  trainer::Tensor aux_loss_;
  const std::unique_ptr<trainer::Queue> queue_;  // last: it finishes before what it uses goes
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_MODEL_MODEL_RUNNER_H_
