// Compiles a loop once for every vector width and chooses the widest when the program runs.
#ifndef CKPT_CORE_BASE_WIDEST_VECTORS_H_
#define CKPT_CORE_BASE_WIDEST_VECTORS_H_

namespace ckpt {

#if defined(__x86_64__) && defined(__GNUC__)
// The project is built for every x86-64. `flatten` inlines all of `body` here, so that it is
// compiled again for the wider instructions. Every machine gives the same bits, if callers that
// multiply and add are compiled with -ffp-contract=off.
template <typename Body>
[[gnu::flatten, gnu::target("avx512f,avx512vl,avx512bw,avx512dq")]] void CallWithAvx512(
    const Body& body) {
  body();
}
template <typename Body>
[[gnu::flatten, gnu::target("avx2")]] void CallWithAvx2(const Body& body) {
  body();
}
#endif

// Calls `body()`, compiled for the widest vectors that this machine has.
template <typename Body>
void WithWidestVectors(const Body& body) {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool has_avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx512) return CallWithAvx512(body);
  if (has_avx2) return CallWithAvx2(body);
#endif
  body();
}

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_WIDEST_VECTORS_H_
