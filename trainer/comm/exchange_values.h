// ExchangeValues: one value of every rank, on every rank.
#ifndef CKPT_TRAINER_COMM_EXCHANGE_VALUES_H_
#define CKPT_TRAINER_COMM_EXCHANGE_VALUES_H_

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"

namespace ckpt::trainer {

// Every rank's `mine`, in order of rank. Its bytes travel, so an address means something to other
// ranks only where they are threads of one process. Every rank calls it. Errors: those of
// HostGroup::Exchange.
template <typename T>
Result<std::vector<T>> ExchangeValues(HostGroup& group, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  CKPT_RETURN_IF_ERROR(
      group.Exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
  return all;
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_EXCHANGE_VALUES_H_
