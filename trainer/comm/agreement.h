// Texts and outcomes that the ranks of a run exchange.
#ifndef CKPT_TRAINER_COMM_AGREEMENT_H_
#define CKPT_TRAINER_COMM_AGREEMENT_H_

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"

namespace ckpt::trainer {

// Replaces `text` by that of rank 0. For ranks of one machine: all of them send, and rank 0's bytes
// are taken. Every rank calls it. Errors: kCancelled (a rank is gone).
Status TakeTextOfRank0(HostGroup& group, std::string& text);

// Every rank's text, in order of rank. Every rank calls it. Errors: kCancelled (a rank is gone).
Result<std::vector<std::string>> ExchangeTexts(HostGroup& world, std::string_view mine);

// The text of `failure` on one line, to be part of another message.
[[nodiscard]] std::string InOneLine(const Status& failure);

// OK if `mine` is OK on every rank. Otherwise a rank that failed gets its own error back, and the
// others get a kCancelled that says which rank failed and how. Every rank calls it.
Status AgreeOn(HostGroup& world, const Status& mine);

// OK if every rank has the same text. Otherwise all ranks get the same error, about a rank whose
// text differs from rank 0's. `what` names the text in messages. Every rank calls it. Errors:
// kValueMismatch, kCancelled.
Status AgreeOnText(HostGroup& world, std::string_view mine, std::string_view what);

// Whether `mine` is true on every rank. Every rank calls it. Errors: kCancelled (a rank is gone).
Result<bool> HoldsEverywhere(HostGroup& world, bool mine);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_AGREEMENT_H_
