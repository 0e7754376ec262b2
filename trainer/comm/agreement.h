// Texts and outcomes exchanged among the ranks of a run.
#ifndef CKPT_TRAINER_COMM_AGREEMENT_H_
#define CKPT_TRAINER_COMM_AGREEMENT_H_

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "trainer/comm/communicator.h"

namespace ckpt::trainer {

// Every rank's text, by rank. Every rank calls it. Errors: kCancelled (a rank is gone).
Result<std::vector<std::string>> ExchangeTexts(Communicator& world, std::string_view mine);

// What `failure` says, on one line, as a part of another message.
[[nodiscard]] std::string InOneLine(const Status& failure);

// OK where `mine` is OK on every rank. A rank that failed gets its own errors back, the others a
// kCancelled that says which rank failed and how. Every rank calls it.
Status AgreeOn(Communicator& world, const Status& mine);

// OK where every rank has the same text, and the same error on all of them where one has another than
// rank 0. `what` the text says, in messages. Every rank calls it. Errors: kValueMismatch, kCancelled.
Status AgreeOnText(Communicator& world, std::string_view mine, std::string_view what);

// Whether it holds on every rank. Every rank calls it. Errors: kCancelled (a rank is gone).
Result<bool> HoldsEverywhere(Communicator& world, bool mine);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_AGREEMENT_H_
