// OpProfile: an Ops that notes how long each kind of call takes, and how many multiplications
// products do.
#ifndef CKPT_TESTS_BENCH_OP_PROFILE_H_
#define CKPT_TESTS_BENCH_OP_PROFILE_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "tests/testing/forwarding_ops.h"

namespace ckpt::testing {

// Only on inline queues, where a call is done when it returns.
class OpProfile final : public ForwardingOps {
 public:
  struct Entry {
    std::int64_t calls = 0;
    double seconds = 0;
    double flops = 0;  // of matrix products: two per multiplication
  };

  using ForwardingOps::ForwardingOps;

  [[nodiscard]] const std::map<std::string, Entry>& entries() const { return entries_; }
  void Clear() {
    entries_.clear();
    products_.clear();
  }

  // How often a product of m, n and k was asked for. Those of experts count as if each had as many
  // rows.
  [[nodiscard]] const std::map<std::array<std::int64_t, 3>, std::int64_t>& products() const {
    return products_;
  }

  void Gemm(Queue& queue, const GemmForm& form, const Tensor& a, const Tensor& b,
            const Tensor& d) override {
    name_ =
        form.transpose_a ? "Gemm, weights" : (form.transpose_b ? "Gemm, forward" : "Gemm, data");
    Note(d.dim(0), d.dim(1), a.dim(form.transpose_a ? 0 : 1), 1);
    ForwardingOps::Gemm(queue, form, a, b, d);
  }
  void GroupedForward(Queue& queue, const Tensor& x, const Tensor& weights, const Tensor& offsets,
                      std::int64_t segments, const Tensor& y) override {
    const std::int64_t experts = weights.dim(0);
    Note(x.dim(0) / experts, y.dim(1), x.dim(1), experts);
    ForwardingOps::GroupedForward(queue, x, weights, offsets, segments, y);
  }
  void GroupedBackwardData(Queue& queue, const Tensor& dy, const Tensor& weights,
                           const Tensor& offsets, std::int64_t segments,
                           const Tensor& dx) override {
    const std::int64_t experts = weights.dim(0);
    Note(dy.dim(0) / experts, dx.dim(1), dy.dim(1), experts);
    ForwardingOps::GroupedBackwardData(queue, dy, weights, offsets, segments, dx);
  }
  void GroupedBackwardWeights(Queue& queue, const Tensor& dy, const Tensor& x,
                              const Tensor& offsets, std::int64_t segments,
                              const Gradient& dweights) override {
    const std::int64_t experts = dweights.tensor.dim(0);
    Note(dy.dim(1), x.dim(1), x.dim(0) / experts, experts);
    ForwardingOps::GroupedBackwardWeights(queue, dy, x, offsets, segments, dweights);
  }

 private:
  void Around(const char* name, const std::function<void()>& call) override {
    Entry& entry = entries_[name_ != nullptr ? name_ : name];
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    ++entry.calls;
    entry.seconds += took.count();
    entry.flops += flops_;
    name_ = nullptr;
    flops_ = 0;
  }

  void Note(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) {
    products_[{m, n, k}] += count;
    flops_ = 2.0 * static_cast<double>(m * n * k * count);
  }

  std::map<std::string, Entry> entries_;
  std::map<std::array<std::int64_t, 3>, std::int64_t> products_;
  const char* name_ = nullptr;  // of the call at hand, in place of its method's
  double flops_ = 0;            // of the call at hand
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_BENCH_OP_PROFILE_H_
