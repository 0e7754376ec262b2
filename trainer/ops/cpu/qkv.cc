// From a fused projection to queries, keys and values, and back.
#include <algorithm>
#include <cstdint>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/row_blocks.h"
#include "trainer/ops/cpu/internal/row_kernels.h"

namespace ckpt::trainer {
namespace {

// One of the three parts of a projection. Its heads, of all tokens, are rows.
struct Part {
  std::int64_t rows = 0;
  std::int64_t rows_per_token = 0;
  std::int64_t rows_per_group = 0;
  std::int64_t first = 0;  // element of a group
  std::int64_t group_elems = 0;
  std::int64_t head_dim = 0;

  // Where a row is in the projection.
  [[nodiscard]] std::int64_t At(std::int64_t row) const {
    return row / rows_per_group * group_elems + first + row % rows_per_group * head_dim;
  }
};

struct Parts {
  Part q, k, v;
};

Parts PartsOf(const QkvShape& shape, const Tensor& qkv) {
  CKPT_CHECK(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0);
  const std::int64_t queries = shape.num_heads / shape.num_kv_heads;
  const std::int64_t group_elems = (queries + 2) * shape.head_dim;
  const std::int64_t groups = qkv.num_elems() / group_elems;
  CKPT_CHECK(qkv.num_elems() == groups * group_elems && groups % shape.num_kv_heads == 0);
  const auto part = [&](std::int64_t heads, std::int64_t first_head) {
    return Part{groups * heads, heads * shape.num_kv_heads,
                heads,          first_head * shape.head_dim,
                group_elems,    shape.head_dim};
  };
  return {part(queries, 0), part(1, queries), part(1, queries + 1)};
}

// x [T, heads, D] is null or has the part's rows.
void CheckPart(const Part& part, const Tensor& x, const Tensor& qkv) {
  CKPT_CHECK(!x || (x.dtype == qkv.dtype && x.num_elems() == part.rows * part.head_dim));
}

void CheckNorm(const Part& part, const Tensor& norm, const Tensor& rstd, DType dtype) {
  CKPT_CHECK(!norm || (norm.dtype == dtype && norm.num_elems() == part.head_dim));
  CKPT_CHECK(!norm || (rstd.dtype == StatisticsDType(dtype) && rstd.num_elems() == part.rows));
}

void CheckRope(const QkvForm& form, DType dtype) {
  CKPT_CHECK(static_cast<bool>(form.cosine) == static_cast<bool>(form.sine));
  if (!form.cosine) return;
  const RopeForm& rope = form.rope;
  CKPT_CHECK(rope.dim % 2 == 0 && rope.dim <= form.shape.head_dim && rope.seq >= 1);
  CKPT_CHECK(!rope.inverse && form.cosine.dtype == StatisticsDType(dtype));
  CKPT_CHECK(form.cosine.num_elems() == rope.seq * rope.dim / 2);
  CKPT_CHECK(form.sine.num_elems() == form.cosine.num_elems());
}

// Rotates a row of a part in place.
template <typename T>
void Rotate(const QkvForm& form, const Part& part, bool inverse, std::int64_t row, T* x) {
  if (!form.cosine) return;
  RopeForm rope = form.rope;
  rope.inverse = inverse;
  const std::int64_t position = PositionOf(rope, row / part.rows_per_token);
  if (position < 0) return;
  const std::int64_t at = position * (rope.dim / 2);
  RotateHead(rope, form.cosine.as<const Real<T>>() + at, form.sine.as<const Real<T>>() + at,
             x + (rope.at_front ? 0 : part.head_dim - rope.dim));
}

// Calls `body(row)` for the rows of a part.
template <typename Body>
void ForRows(Parallel& parallel, const Part& part, const Body& body) {
  parallel.For(part.rows, GrainRows(part.head_dim), [&](std::int64_t begin, std::int64_t end) {
    WithWidestVectors([&] {
      for (std::int64_t row = begin; row < end; ++row) body(row);
    });
  });
}

template <typename T>
void Prepare(Parallel& parallel, const QkvForm& form, const Part& part, const Tensor& qkv,
             const Tensor& norm, const Tensor& x, const Tensor& rstd) {
  ForRows(parallel, part, [&](std::int64_t row) {
    const T* const from = qkv.as<const T>() + part.At(row);
    T* const to = x.as<T>() + row * part.head_dim;
    if (norm) {
      rstd.as<Real<T>>()[row] = NormalizeRow(
          from, norm.as<const T>(), static_cast<Real<T>>(form.norm_eps), part.head_dim, to);
    } else {
      std::copy_n(from, part.head_dim, to);
    }
    Rotate(form, part, /*inverse=*/false, row, to);
  });
}

template <typename T>
void PrepareBackward(Parallel& parallel, const QkvForm& form, const Part& part, const Tensor& dx,
                     const Tensor& qkv, const Tensor& norm, const Tensor& rstd, const Tensor& dqkv,
                     const Gradient& dnorm) {
  const std::int64_t columns = part.head_dim;
  RowBlockSums<Real<T>> sums(part.rows, dnorm ? columns : 0);
  sums.ForRows(parallel, columns, [&](std::int64_t row, Real<T>* dw) {
    T* const from = dx.as<T>() + row * columns;
    T* const to = dqkv.as<T>() + part.At(row);
    Rotate(form, part, /*inverse=*/true, row, from);
    if (norm) {
      NormalizeRowBackward(from, qkv.as<const T>() + part.At(row), norm.as<const T>(),
                           rstd.as<const Real<T>>()[row], columns, /*accumulate=*/false, to,
                           dnorm ? dw : nullptr);
    } else {
      std::copy_n(from, columns, to);
    }
  });
  if (dnorm) sums.Write(parallel, dnorm);
}

}  // namespace

void HostOps::QkvPrepare(Queue& queue, const QkvForm& form, const Tensor& qkv, const Tensor& q,
                         const Tensor& k, const Tensor& v, const Tensor& q_rstd,
                         const Tensor& k_rstd) {
  const Parts parts = PartsOf(form.shape, qkv);
  CheckPart(parts.q, q, qkv);
  CheckPart(parts.k, k, qkv);
  CheckPart(parts.v, v, qkv);
  CheckNorm(parts.q, form.q_norm, q_rstd, qkv.dtype);
  CheckNorm(parts.k, form.k_norm, k_rstd, qkv.dtype);
  CheckRope(form, qkv.dtype);
  RunOn(queue, [=, this] {
    DispatchCompute(qkv.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      Prepare<T>(parallel_, form, parts.q, qkv, form.q_norm, q, q_rstd);
      Prepare<T>(parallel_, form, parts.k, qkv, form.k_norm, k, k_rstd);
      if (!v) return;
      ForRows(parallel_, parts.v, [&](std::int64_t row) {
        std::copy_n(qkv.as<const T>() + parts.v.At(row), parts.v.head_dim,
                    v.as<T>() + row * parts.v.head_dim);
      });
    });
  });
}

void HostOps::QkvPrepareBackward(Queue& queue, const QkvForm& form, const Tensor& dq,
                                 const Tensor& dk, const Tensor& dv, const Tensor& qkv,
                                 const Tensor& q_rstd, const Tensor& k_rstd, const Tensor& dqkv,
                                 const Gradient& dq_norm, const Gradient& dk_norm) {
  const Parts parts = PartsOf(form.shape, dqkv);
  CheckPart(parts.q, dq, dqkv);
  CheckPart(parts.k, dk, dqkv);
  CheckPart(parts.v, dv, dqkv);
  CheckNorm(parts.q, form.q_norm, q_rstd, dqkv.dtype);
  CheckNorm(parts.k, form.k_norm, k_rstd, dqkv.dtype);
  CheckRope(form, dqkv.dtype);
  CKPT_CHECK(!form.q_norm || (qkv.dtype == dqkv.dtype && qkv.num_elems() == dqkv.num_elems()));
  RunOn(queue, [=, this] {
    DispatchCompute(dqkv.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      PrepareBackward<T>(parallel_, form, parts.q, dq, qkv, form.q_norm, q_rstd, dqkv, dq_norm);
      PrepareBackward<T>(parallel_, form, parts.k, dk, qkv, form.k_norm, k_rstd, dqkv, dk_norm);
      if (!dv) return;
      ForRows(parallel_, parts.v, [&](std::int64_t row) {
        std::copy_n(dv.as<const T>() + row * parts.v.head_dim, parts.v.head_dim,
                    dqkv.as<T>() + parts.v.At(row));
      });
    });
  });
}

}  // namespace ckpt::trainer
