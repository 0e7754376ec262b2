#include "trainer/comm/same_call.h"

#include <string>

#include <fmt/format.h>

namespace ckpt::trainer {
namespace {

std::string TextOf(const RankCall& call) {
  return fmt::format("rank {} in {} of {} bytes", call.rank, call.name, call.size_bytes);
}

}  // namespace

Status CheckSameCall(const RankCall& expected, const RankCall& actual) {
  if (expected.name == actual.name && expected.size_bytes == actual.size_bytes) return OkStatus();
  return Error(ErrorKind::kInternal, "ranks of one group make different calls")
      .Expected(TextOf(expected))
      .Actual(TextOf(actual));
}

}  // namespace ckpt::trainer
