// Fills, casts, sums and biases.
#include <cstdint>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/row_blocks.h"
#include "trainer/ops/cpu/internal/vector_loop.h"

namespace ckpt::trainer {
namespace {

// An element of any dtype of gradients, as a number.
template <typename T>
Real<T> ValueOf(T element) {
  return Load(element);
}
double ValueOf(std::int64_t element) { return FromFixedPoint(element); }

template <typename T>
T FromValue(double value) {
  return Store<T>(static_cast<Real<T>>(value));
}
template <>
std::int64_t FromValue<std::int64_t>(double value) {
  return ToFixedPoint(value);
}

template <typename From, typename To>
To CastElement(From element) {
  return FromValue<To>(static_cast<double>(ValueOf(element)));
}
// Between equal types nothing is rounded and the bits stay the same. Otherwise fixed point beyond
// its range would become NaN.
template <typename From, typename To>
requires std::is_same_v<From, To> To CastElement(From element) { return element; }

template <typename From, typename To>
void AddElement(From element, To& to) {
  AccumulateInto(to, static_cast<double>(ValueOf(element)));
}
void AddElement(std::int64_t element, std::int64_t& to) {
  to = static_cast<std::int64_t>(static_cast<std::uint64_t>(to) +
                                 static_cast<std::uint64_t>(element));
}

}  // namespace

void HostOps::Fill(Queue& queue, const Tensor& x, double value) {
  RunOn(queue, [this, x, value] {
    const auto fill = [&](auto* to, auto element) {
      parallel_.For(x.num_elems(), kGrainElems, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) to[i] = element;
      });
    };
    // Indices and counts are filled with the integer itself. So is fixed point, for which only 0 is
    // used.
    if (x.dtype == DType::kInt32)
      return fill(x.as<std::int32_t>(), static_cast<std::int32_t>(value));
    if (x.dtype == DType::kInt64)
      return fill(x.as<std::int64_t>(), static_cast<std::int64_t>(value));
    DispatchCompute(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      fill(x.as<T>(), FromValue<T>(value));
    });
  });
}

void HostOps::Cast(Queue& queue, const Tensor& from, const Tensor& to) {
  CKPT_CHECK(from.num_elems() == to.num_elems());
  RunOn(queue, [this, from, to] {
    DispatchGradient(from.dtype, [&](auto from_tag) {
      DispatchGradient(to.dtype, [&](auto to_tag) {
        using From = typename decltype(from_tag)::type;
        using To = typename decltype(to_tag)::type;
        const auto* in = from.as<const From>();
        auto* out = to.as<To>();
        parallel_.For(to.num_elems(), kGrainElems, [&](std::int64_t begin, std::int64_t end) {
          WithWidestVectors([=] {
            ForEach(begin, end, [=](std::int64_t i) { out[i] = CastElement<From, To>(in[i]); });
          });
        });
      });
    });
  });
}

void HostOps::Accumulate(Queue& queue, const Tensor& from, const Tensor& to) {
  CKPT_CHECK(from.num_elems() == to.num_elems());
  RunOn(queue, [this, from, to] {
    DispatchGradient(from.dtype, [&](auto from_tag) {
      DispatchGradient(to.dtype, [&](auto to_tag) {
        const auto* in = from.as<const typename decltype(from_tag)::type>();
        auto* out = to.as<typename decltype(to_tag)::type>();
        parallel_.For(to.num_elems(), kGrainElems, [&](std::int64_t begin, std::int64_t end) {
          WithWidestVectors(
              [=] { ForEach(begin, end, [=](std::int64_t i) { AddElement(in[i], out[i]); }); });
        });
      });
    });
  });
}

void HostOps::Add(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& out) {
  CKPT_CHECK(a.dtype == b.dtype && a.dtype == out.dtype);
  CKPT_CHECK(a.num_elems() == b.num_elems() && a.num_elems() == out.num_elems());
  RunOn(queue, [this, a, b, out] {
    DispatchCompute(out.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const auto* left = a.as<const T>();
      const auto* right = b.as<const T>();
      auto* sum = out.as<T>();
      parallel_.For(out.num_elems(), kGrainElems, [&](std::int64_t begin, std::int64_t end) {
        WithWidestVectors([=] {
          ForEach(begin, end,
                  [=](std::int64_t i) { sum[i] = Store<T>(Load(left[i]) + Load(right[i])); });
        });
      });
    });
  });
}

void HostOps::AddBias(Queue& queue, const Tensor& x, const Tensor& bias) {
  const std::int64_t columns = bias.num_elems();
  CKPT_CHECK(x.dtype == bias.dtype && x.ndim > 0 && x.dim(x.ndim - 1) == columns);
  RunOn(queue, [this, x, bias, columns] {
    DispatchCompute(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const auto* add = bias.as<const T>();
      const std::int64_t rows = columns == 0 ? 0 : x.num_elems() / columns;
      parallel_.For(rows, GrainRows(columns), [&](std::int64_t begin, std::int64_t end) {
        WithWidestVectors([=] {
          for (std::int64_t row = begin; row < end; ++row) {
            auto* values = x.as<T>() + row * columns;
            ForEach(0, columns,
                    [=](std::int64_t i) { values[i] = Store<T>(Load(values[i]) + Load(add[i])); });
          }
        });
      });
    });
  });
}

void HostOps::BiasBackward(Queue& queue, const Tensor& dy, const Gradient& dbias) {
  if (!dbias) return;
  const std::int64_t columns = dbias.tensor.num_elems();
  CKPT_CHECK(dy.ndim > 0 && dy.dim(dy.ndim - 1) == columns);
  RunOn(queue, [this, dy, dbias, columns] {
    DispatchCompute(dy.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::int64_t rows = columns == 0 ? 0 : dy.num_elems() / columns;
      RowBlockSums<Real<T>> sums(rows, columns);
      sums.ForRows(parallel_, columns, [=](std::int64_t row, Real<T>* block) {
        const auto* gradient = dy.as<const T>() + row * columns;
        ForEach(0, columns, [=](std::int64_t i) { block[i] += Load(gradient[i]); });
      });
      sums.Write(parallel_, dbias);
    });
  });
}

}  // namespace ckpt::trainer
