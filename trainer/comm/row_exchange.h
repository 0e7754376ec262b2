// RowExchange: rows of an array that a rank sends to others, and those that it receives.
#ifndef CKPT_TRAINER_COMM_ROW_EXCHANGE_H_
#define CKPT_TRAINER_COMM_ROW_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"

namespace ckpt::trainer {

// One rank's side. The rows of each peer follow each other in order of rank.
struct RowExchange {
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  std::uint64_t row_bytes = 0;
  std::vector<std::int64_t> send_rows = {};  // to each rank
  std::vector<std::int64_t> receive_rows = {};
};

// Copies the rows that `rank` receives from the memory of those that send them. `all` are the sides
// of all ranks, in order. Errors: kInternal (a rank sends a different number of rows than is
// received).
Status ReceiveRows(int rank, const RowExchange& mine, std::span<const RowExchange* const> all);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_ROW_EXCHANGE_H_
