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

// OK where `mine` is OK on every rank. A rank that failed gets its own errors back, the others a
// kCancelled that says which rank failed and how. Every rank calls it.
Status AgreeOn(Communicator& world, const Status& mine);

// Whether it holds on every rank. Every rank calls it. Errors: kCancelled (a rank is gone).
Result<bool> HoldsEverywhere(Communicator& world, bool mine);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_AGREEMENT_H_
