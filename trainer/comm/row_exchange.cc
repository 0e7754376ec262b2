#include "trainer/comm/row_exchange.h"

#include <string>

#include "trainer/comm/internal/copy_bytes.h"

namespace ckpt::trainer {

Status ReceiveRows(int rank, const RowExchange& mine, std::span<const RowExchange* const> all) {
  std::byte* to = mine.receive;
  for (std::size_t peer = 0; peer < all.size(); ++peer) {
    const RowExchange& theirs = *all[peer];
    const std::int64_t num_rows = theirs.send_rows[static_cast<std::size_t>(rank)];
    const std::int64_t expected = mine.receive_rows[peer];
    if (num_rows != expected) {
      return Error(ErrorKind::kInternal, "a rank sends a different number of rows than is received")
          .Expected(std::to_string(expected) + " rows from rank " + std::to_string(peer))
          .Actual(std::to_string(num_rows));
    }
    std::int64_t rows_before = 0;
    for (int i = 0; i < rank; ++i) rows_before += theirs.send_rows[static_cast<std::size_t>(i)];
    const std::byte* const from =
        theirs.send + static_cast<std::uint64_t>(rows_before) * mine.row_bytes;
    const std::uint64_t size_bytes = static_cast<std::uint64_t>(num_rows) * mine.row_bytes;
    CopyBytes(from, to, size_bytes);
    to += size_bytes;
  }
  return OkStatus();
}

}  // namespace ckpt::trainer
