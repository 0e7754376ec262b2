// The seed of tests with random cases.
#ifndef CKPT_TESTS_TESTING_TEST_SEED_H_
#define CKPT_TESTS_TESTING_TEST_SEED_H_

#include <cstdint>
#include <cstdlib>

namespace ckpt::testing {

// CKPT_TEST_SEED, which a failure names so that it can be replayed; else the test's own.
[[nodiscard]] inline std::uint64_t TestSeed(std::uint64_t own) {
  const char* seed = std::getenv("CKPT_TEST_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 10) : own;
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_TEST_SEED_H_
