// What a disk may hold after a power failure: every legal outcome of operations that were not
// synced.
#ifndef CKPT_TESTS_RELIABILITY_CRASH_STATES_H_
#define CKPT_TESTS_RELIABILITY_CRASH_STATES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "tests/reliability/crash_storage.h"

namespace ckpt::testing {

struct CrashStateOptions {
  // Outcomes beyond this number are drawn at random.
  std::size_t max_states = 256;
  std::uint64_t seed = 0;
};

// Calls `visit` for the states in which a failure behind the last of `ops` may leave a disk that
// held `start`, and returns how many there were. The first one has nothing that was not synced.
//
// The model is weaker than any journaling file system; what is safe here is safe there:
//
//  - Bytes and size of a file are durable once it was synced, names once their directory was.
//    Syncing a file does not make its name durable.
//  - Of each file's other writes, any of these may have happened: none; the first few; the first
//    few and a part of the next one, cut at a multiple of 512 bytes from either end or with one
//    page of 4 KiB missing; all but one; one alone; only the growth of the file, which then reads
//    as zeros.
//  - Of other changes of names, any set may have happened whose members find what they need: all
//    sets up to five changes, else the first few, all but one, one alone, and random ones.
//  - The outcomes of different files, and of names, combine freely. If there are more combinations
//    than `max_states`: every outcome of each with nothing and with everything of the others, then
//    random combinations.
//
// After a failed sync, what was written before stays in the first two groups for ever.
std::size_t ForEachCrashState(const DiskImage& start, std::span<const StorageOp> ops,
                              const CrashStateOptions& options,
                              const std::function<void(const DiskImage&)>& visit);

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_CRASH_STATES_H_
