#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/row_blocks.h"
#include "trainer/ops/cpu/internal/row_kernels.h"
#include "trainer/ops/cpu/internal/vector_loop.h"

namespace ckpt::trainer {
namespace {

// A place in a row. Copying elements from one place to another advances both.
struct Cursor {
  std::byte* at = nullptr;

  void Take(Cursor& from, std::int64_t size_bytes) {
    std::memcpy(at, from.at, static_cast<std::size_t>(size_bytes));
    at += size_bytes;
    from.at += size_bytes;
  }
};

std::int64_t RowBytes(const Tensor& x, std::int64_t rows) {
  return rows == 0 ? 0 : static_cast<std::int64_t>(x.size_bytes()) / rows;
}

Cursor RowOf(const Tensor& x, std::int64_t row, std::int64_t row_bytes) {
  return {x.bytes() + row * row_bytes};
}

std::int64_t ElemBytes(const Tensor& x) { return static_cast<std::int64_t>(ElementBytes(x.dtype)); }

// Whether elements move from the whole to its parts or back. Both directions walk through them in
// the same order.
enum class Direction : std::uint8_t { kSplit, kMerge };

void Move(Direction direction, Cursor& whole, Cursor& part, std::int64_t size_bytes) {
  if (direction == Direction::kSplit) {
    part.Take(whole, size_bytes);
  } else {
    whole.Take(part, size_bytes);
  }
}

void MoveColumns(Parallel& parallel, Direction direction, const Tensor& whole, const Tensor& a,
                 const Tensor& b) {
  const std::int64_t rows = whole.dim(0);
  const std::int64_t a_bytes = RowBytes(a, rows);
  const std::int64_t b_bytes = RowBytes(b, rows);
  parallel.For(rows, GrainRows(whole.num_elems() / std::max<std::int64_t>(1, rows)),
               [&](std::int64_t begin, std::int64_t end) {
                 Cursor both = RowOf(whole, begin, a_bytes + b_bytes);
                 Cursor left = RowOf(a, begin, a_bytes);
                 Cursor right = RowOf(b, begin, b_bytes);
                 for (std::int64_t row = begin; row < end; ++row) {
                   Move(direction, both, left, a_bytes);
                   Move(direction, both, right, b_bytes);
                 }
               });
}

std::int64_t CheckMla(const MlaShape& shape, const Tensor& kv, const Tensor& k_rope,
                      const Tensor& k, const Tensor& v) {
  const std::int64_t tokens = k_rope.num_elems() / shape.rope_dim;
  const std::int64_t heads = tokens * shape.num_heads;
  CKPT_CHECK(kv.num_elems() == heads * (shape.nope_dim + shape.v_dim));
  CKPT_CHECK(k.num_elems() == heads * (shape.nope_dim + shape.rope_dim));
  CKPT_CHECK(v.num_elems() == heads * shape.v_dim && k_rope.num_elems() == tokens * shape.rope_dim);
  CKPT_CHECK(kv.dtype == k.dtype && kv.dtype == v.dtype && kv.dtype == k_rope.dtype);
  return tokens;
}

void CheckColumns(const Tensor& whole, const Tensor& a, const Tensor& b) {
  CKPT_CHECK(whole.ndim >= 1 && a.ndim >= 1 && b.ndim >= 1);
  CKPT_CHECK(whole.dim(0) == a.dim(0) && whole.dim(0) == b.dim(0));
  CKPT_CHECK(whole.dtype == a.dtype && whole.dtype == b.dtype);
  CKPT_CHECK(whole.num_elems() == a.num_elems() + b.num_elems());
}

}  // namespace

void HostOps::SplitMlaKv(Queue& queue, const MlaShape& shape, const Tensor& kv,
                         const Tensor& k_rope, const Tensor& k, const Tensor& v) {
  const std::int64_t tokens = CheckMla(shape, kv, k_rope, k, v);
  RunOn(queue, [=, this] {
    const std::int64_t elem_bytes = ElemBytes(kv);
    const std::int64_t rope_bytes = shape.rope_dim * elem_bytes;
    parallel_.For(tokens, GrainRows(k.num_elems() / std::max<std::int64_t>(1, tokens)),
                  [&](std::int64_t begin, std::int64_t end) {
                    Cursor latent = RowOf(kv, begin, RowBytes(kv, tokens));
                    Cursor key = RowOf(k, begin, RowBytes(k, tokens));
                    Cursor value = RowOf(v, begin, RowBytes(v, tokens));
                    for (std::int64_t t = begin; t < end; ++t) {
                      for (std::int64_t head = 0; head < shape.num_heads; ++head) {
                        Cursor shared = RowOf(k_rope, t, rope_bytes);
                        key.Take(latent, shape.nope_dim * elem_bytes);
                        key.Take(shared, rope_bytes);
                        value.Take(latent, shape.v_dim * elem_bytes);
                      }
                    }
                  });
  });
}

void HostOps::SplitMlaKvBackward(Queue& queue, const MlaShape& shape, const Tensor& dk,
                                 const Tensor& dv, const Tensor& dkv, const Tensor& dk_rope) {
  const std::int64_t tokens = CheckMla(shape, dkv, dk_rope, dk, dv);
  RunOn(queue, [=, this] {
    DispatchCompute(dk.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::int64_t k_dim = shape.nope_dim + shape.rope_dim;
      parallel_.For(tokens, GrainRows(dk.num_elems() / std::max<std::int64_t>(1, tokens)),
                    [&](std::int64_t begin, std::int64_t end) {
                      const T* key = dk.as<const T>() + begin * shape.num_heads * k_dim;
                      const T* value = dv.as<const T>() + begin * shape.num_heads * shape.v_dim;
                      T* latent =
                          dkv.as<T>() + begin * shape.num_heads * (shape.nope_dim + shape.v_dim);
                      for (std::int64_t t = begin; t < end; ++t) {
                        for (std::int64_t i = 0; i < shape.rope_dim; ++i) {
                          Real<T> sum = 0;
                          for (std::int64_t head = 0; head < shape.num_heads; ++head) {
                            sum += Load(key[head * k_dim + shape.nope_dim + i]);
                          }
                          dk_rope.as<T>()[t * shape.rope_dim + i] = Store<T>(sum);
                        }
                        for (std::int64_t head = 0; head < shape.num_heads; ++head) {
                          latent = std::copy_n(key, shape.nope_dim, latent);
                          latent = std::copy_n(value, shape.v_dim, latent);
                          key += k_dim;
                          value += shape.v_dim;
                        }
                      }
                    });
    });
  });
}

void HostOps::SplitColumns(Queue& queue, const Tensor& from, const Tensor& a, const Tensor& b) {
  CheckColumns(from, a, b);
  RunOn(queue, [=, this] { MoveColumns(parallel_, Direction::kSplit, from, a, b); });
}

void HostOps::MergeColumns(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& to) {
  CheckColumns(to, a, b);
  RunOn(queue, [=, this] { MoveColumns(parallel_, Direction::kMerge, to, a, b); });
}

void HostOps::Rope(Queue& queue, const RopeForm& form, const Tensor& cosine, const Tensor& sine,
                   const Tensor& x) {
  CKPT_CHECK(x.ndim == 3 && form.dim % 2 == 0 && form.dim <= x.dim(2) && form.seq >= 1);
  CKPT_CHECK(cosine.dtype == StatisticsDType(x.dtype) && sine.dtype == cosine.dtype);
  CKPT_CHECK(cosine.num_elems() == form.seq * form.dim / 2 &&
             sine.num_elems() == cosine.num_elems());
  CKPT_CHECK(!form.positions ||
             (form.positions.dtype == DType::kInt32 && form.positions.num_elems() == x.dim(0)));
  RunOn(queue, [=, this] {
    DispatchCompute(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::int64_t heads = x.dim(1);
      const std::int64_t head_dim = x.dim(2);
      const std::int64_t first = form.at_front ? 0 : head_dim - form.dim;
      parallel_.For(
          x.dim(0), GrainRows(heads * form.dim), [&](std::int64_t begin, std::int64_t end) {
            WithWidestVectors([&] {
              for (std::int64_t t = begin; t < end; ++t) {
                const std::int64_t position = PositionOf(form, t);
                if (position < 0) continue;
                const std::int64_t at = position * (form.dim / 2);
                for (std::int64_t head = 0; head < heads; ++head) {
                  RotateHead(form, cosine.as<const Real<T>>() + at, sine.as<const Real<T>>() + at,
                             x.as<T>() + (t * heads + head) * head_dim + first);
                }
              }
            });
          });
    });
  });
}

}  // namespace ckpt::trainer
