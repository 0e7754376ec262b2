// Makes the k-th `operator new` of the program fail.
//
// Link allocation_faults.cc into the program itself: it replaces the operators.
#ifndef CKPT_TESTS_RELIABILITY_ALLOCATION_FAULTS_H_
#define CKPT_TESTS_RELIABILITY_ALLOCATION_FAULTS_H_

#include <cstdint>

namespace ckpt::testing {

struct AllocationFault {
  std::int64_t at = -1;    // number of the allocation, from 0; negative: none fails
  bool is_sticky = false;  // all later ones too
};

// Counts the allocations of all threads while it lives, and fails one with std::bad_alloc. One at a
// time.
class AllocationFaults {
 public:
  explicit AllocationFaults(const AllocationFault& fault);
  AllocationFaults(const AllocationFaults&) = delete;
  AllocationFaults& operator=(const AllocationFaults&) = delete;
  ~AllocationFaults();

  // Asked for so far.
  [[nodiscard]] static std::int64_t asked();
  // Given and not yet given back.
  [[nodiscard]] static std::int64_t live();
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_ALLOCATION_FAULTS_H_
