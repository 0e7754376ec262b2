// Loops that the compiler turns into the widest vector instructions of the machine.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_VECTOR_LOOP_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_VECTOR_LOOP_H_

#include <cstdint>
#include <limits>

#include "core/base/widest_vectors.h"

// For GCC: it does not vectorise a loop whose result overwrites an operand, because it tests for
// overlap at run time.
#if defined(__GNUC__) && !defined(__clang__)
#define CKPT_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
// For GCC as well: it would unroll a short loop of selections first, and then not vectorise it.
#define CKPT_NOT_UNROLLED _Pragma("GCC unroll 1")
#else
#define CKPT_INDEPENDENT_ITERATIONS
#define CKPT_NOT_UNROLLED
#endif

namespace ckpt::trainer {

// Calls `body(i)` for i in [begin, end). Iterations must be independent: none reads or writes what
// another writes. A result may overwrite its operand in place.
template <typename Body>
inline void ForEach(std::int64_t begin, std::int64_t end, const Body& body) {
  CKPT_INDEPENDENT_ITERATIONS
  for (std::int64_t i = begin; i < end; ++i) body(i);
}

// The largest term(i) for i in [0, count); -infinity if count is 0. Terms that are NaN are ignored.
template <typename Real, typename Term>
inline Real LaneMax(std::int64_t count, const Term& term) {
  constexpr int kLanes = 16;
  Real lanes[kLanes];
  for (Real& lane : lanes) lane = -std::numeric_limits<Real>::infinity();
  const std::int64_t whole = count - count % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    CKPT_NOT_UNROLLED
    for (int lane = 0; lane < kLanes; ++lane) {
      const Real value = term(i + lane);
      lanes[lane] = lanes[lane] < value ? value : lanes[lane];
    }
  }
  Real largest = lanes[0];
  for (const Real lane : lanes) largest = largest < lane ? lane : largest;
  for (std::int64_t i = whole; i < count; ++i) {
    const Real value = term(i);
    largest = largest < value ? value : largest;
  }
  return largest;
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_VECTOR_LOOP_H_
