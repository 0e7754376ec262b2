// An explanation for people.
#ifndef CKPT_TOOLS_CKPT_TRAIN_EXPLANATION_TEXT_H_
#define CKPT_TOOLS_CKPT_TRAIN_EXPLANATION_TEXT_H_

#include <string>

#include "trainer/explain/explanation.h"

namespace ckpt::train {

[[nodiscard]] std::string ExplanationText(const Explanation& explanation);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_EXPLANATION_TEXT_H_
