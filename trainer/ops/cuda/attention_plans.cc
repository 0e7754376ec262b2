// The only file that includes cuDNN's frontend, which takes half a minute to compile.
#include "trainer/ops/cuda/attention_plans.h"

#include <compare>
#include <cstdint>
#include <cudnn_frontend.h>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/base/check.h"

namespace ckpt::trainer::cuda {
namespace {

namespace fe = cudnn_frontend;

// The operands of both graphs, as cuDNN's unique ids.
enum Operand : std::int64_t { kQ = 1, kK, kV, kO, kLse, kDO, kDQ, kDK, kDV };

struct Key {
  bool backward = false;
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t qk_dim = 0;
  std::int64_t v_dim = 0;
  std::int64_t v_stride = 0;
  double scale = 1;
  std::int64_t window = 0;

  auto operator<=>(const Key&) const = default;
};

Key KeyOf(const AttentionShape& shape, bool backward) {
  return {backward,     shape.batch, shape.seq,      shape.num_heads, shape.num_kv_heads,
          shape.qk_dim, shape.v_dim, shape.v_stride, shape.scale,     shape.window};
}

struct Plan {
  fe::graph::Graph graph;
  std::int64_t workspace_bytes = 0;
};

using TensorPtr = std::shared_ptr<fe::graph::Tensor_attributes>;

Status FrontendStatus(fe::error_t error, const char* call) {
  if (error.is_good()) return OkStatus();
  return Error(ErrorKind::kSystem, "attention failed on the GPU")
      .Expected(std::string(call) + " to succeed")
      .Actual(error.get_message());
}

Status CudnnStatus(cudnnStatus_t code, const char* call) {
  if (code == CUDNN_STATUS_SUCCESS) return OkStatus();
  return Error(ErrorKind::kSystem, "attention failed on the GPU")
      .Expected(std::string(call) + " to succeed")
      .Actual(cudnnGetErrorString(code));
}

// x [T, heads, dim] as cuDNN names it: dims [batch, heads, seq, dim].
void Describe(fe::graph::Tensor_attributes& tensor, Operand id, const AttentionShape& shape,
              std::int64_t heads, std::int64_t dim) {
  const bool is_value = id == kV || id == kDV;
  const std::int64_t stride = is_value && shape.v_stride != 0 ? shape.v_stride : dim;
  tensor.set_uid(id)
      .set_dim({shape.batch, heads, shape.seq, dim})
      .set_stride({shape.seq * heads * stride, stride, heads * stride, 1});
}

// lse [B, N, S].
void DescribeLse(fe::graph::Tensor_attributes& tensor, const AttentionShape& shape) {
  tensor.set_uid(kLse)
      .set_dim({shape.batch, shape.num_heads, shape.seq, 1})
      .set_stride({shape.num_heads * shape.seq, shape.seq, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

TensorPtr Input(fe::graph::Graph& graph, Operand id, const AttentionShape& shape,
                std::int64_t heads, std::int64_t dim) {
  fe::graph::Tensor_attributes tensor;
  Describe(tensor, id, shape, heads, dim);
  return graph.tensor(tensor);
}

template <typename Attributes>
Attributes MaskOf(const AttentionShape& shape) {
  Attributes attributes;
  attributes.set_attn_scale(static_cast<float>(shape.scale))
      .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  if (shape.window != 0 && shape.window < shape.seq) {
    attributes.set_diagonal_band_left_bound(static_cast<int>(shape.window));
  }
  return attributes;
}

void AddForward(fe::graph::Graph& graph, const AttentionShape& shape) {
  const TensorPtr q = Input(graph, kQ, shape, shape.num_heads, shape.qk_dim);
  const TensorPtr k = Input(graph, kK, shape, shape.num_kv_heads, shape.qk_dim);
  const TensorPtr v = Input(graph, kV, shape, shape.num_kv_heads, shape.v_dim);
  auto attributes = MaskOf<fe::graph::SDPA_attributes>(shape);
  attributes.set_generate_stats(true);
  const auto [o, lse] = graph.sdpa(q, k, v, attributes);
  Describe(o->set_output(true), kO, shape, shape.num_heads, shape.v_dim);
  DescribeLse(lse->set_output(true), shape);
}

void AddBackward(fe::graph::Graph& graph, const AttentionShape& shape, bool deterministic) {
  const TensorPtr q = Input(graph, kQ, shape, shape.num_heads, shape.qk_dim);
  const TensorPtr k = Input(graph, kK, shape, shape.num_kv_heads, shape.qk_dim);
  const TensorPtr v = Input(graph, kV, shape, shape.num_kv_heads, shape.v_dim);
  const TensorPtr o = Input(graph, kO, shape, shape.num_heads, shape.v_dim);
  const TensorPtr d_o = Input(graph, kDO, shape, shape.num_heads, shape.v_dim);
  fe::graph::Tensor_attributes lse;
  DescribeLse(lse, shape);
  auto attributes = MaskOf<fe::graph::SDPA_backward_attributes>(shape);
  attributes.set_deterministic_algorithm(deterministic);
  const auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, o, d_o, graph.tensor(lse), attributes);
  Describe(dq->set_output(true), kDQ, shape, shape.num_heads, shape.qk_dim);
  Describe(dk->set_output(true), kDK, shape, shape.num_kv_heads, shape.qk_dim);
  Describe(dv->set_output(true), kDV, shape, shape.num_kv_heads, shape.v_dim);
}

}  // namespace

class AttentionPlans::Impl {
 public:
  Impl(cudnnHandle_t handle, bool deterministic) : handle_(handle), deterministic_(deterministic) {}
  ~Impl() { (void)cudnnDestroy(handle_); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void Run(CudaQueue& queue, const AttentionShape& shape, bool backward,
           std::unordered_map<std::int64_t, void*> operands) {
    const Result<Plan*> plan = PlanOf(shape, backward);
    if (!plan.ok()) return queue.Fail(plan.status());
    std::byte* const workspace =
        queue.Scratch(static_cast<std::uint64_t>((*plan)->workspace_bytes));
    if (workspace == nullptr && (*plan)->workspace_bytes > 0) return;
    Status status = CudnnStatus(cudnnSetStream(handle_, queue.stream()), "cudnnSetStream");
    if (status.ok()) {
      status = FrontendStatus((*plan)->graph.execute(handle_, operands, workspace), "execute");
    }
    if (!status.ok()) queue.Fail(std::move(status));
  }

 private:
  Result<Plan*> PlanOf(const AttentionShape& shape, bool backward) {
    const Key key = KeyOf(shape, backward);
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second.get();
    auto plan = std::make_unique<Plan>();
    fe::graph::Graph& graph = plan->graph;
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (backward) {
      AddBackward(graph, shape, deterministic_);
    } else {
      AddForward(graph, shape);
    }
    CKPT_RETURN_IF_ERROR(
        FrontendStatus(graph.build(handle_, {fe::HeurMode_t::A}), "an attention plan"));
    CKPT_RETURN_IF_ERROR(
        FrontendStatus(graph.get_workspace_size(plan->workspace_bytes), "get_workspace_size"));
    return plans_.emplace(key, std::move(plan)).first->second.get();
  }

  const cudnnHandle_t handle_;
  const bool deterministic_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

AttentionPlans::AttentionPlans(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AttentionPlans::~AttentionPlans() = default;

Result<std::unique_ptr<AttentionPlans>> AttentionPlans::Create(bool deterministic) {
  cudnnHandle_t handle = nullptr;
  CKPT_RETURN_IF_ERROR(CudnnStatus(cudnnCreate(&handle), "cudnnCreate"));
  return std::unique_ptr<AttentionPlans>(
      new AttentionPlans(std::make_unique<Impl>(handle, deterministic)));
}

// cuDNN's backward on Hopper takes heads of up to 128 elements, whose number is a multiple of 8,
// those of DeepSeek's latent attention, and sequences of two tokens or more.
bool AttentionPlans::Covers(const AttentionShape& shape, DType dtype) {
  const bool has_alike =
      shape.qk_dim <= 128 && shape.qk_dim == shape.v_dim && shape.qk_dim % 8 == 0;
  const bool is_latent = shape.qk_dim == 192 && shape.v_dim == 128;
  return dtype == DType::kBfloat16 && !shape.examples.cu_seqlens && (has_alike || is_latent) &&
         shape.seq > 1;
}

void AttentionPlans::Forward(CudaQueue& queue, const AttentionShape& shape, const Tensor& q,
                             const Tensor& k, const Tensor& v, const Tensor& o, const Tensor& lse) {
  CKPT_CHECK(Covers(shape, q.dtype));
  impl_->Run(queue, shape, /*backward=*/false,
             {{kQ, q.data}, {kK, k.data}, {kV, v.data}, {kO, o.data}, {kLse, lse.data}});
}

void AttentionPlans::Backward(CudaQueue& queue, const AttentionShape& shape, const Tensor& d_o,
                              const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                              const Tensor& lse, const Tensor& dq, const Tensor& dk,
                              const Tensor& dv) {
  CKPT_CHECK(Covers(shape, q.dtype));
  impl_->Run(queue, shape, /*backward=*/true,
             {{kQ, q.data},
              {kK, k.data},
              {kV, v.data},
              {kO, o.data},
              {kLse, lse.data},
              {kDO, d_o.data},
              {kDQ, dq.data},
              {kDK, dk.data},
              {kDV, dv.data}});
}

}  // namespace ckpt::trainer::cuda
