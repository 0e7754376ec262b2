// Compares our rendering of objects with the notation in which the torch_dist goldens give them.
#ifndef CKPT_TESTS_GOLDEN_MEGATRON_NOTATION_H_
#define CKPT_TESTS_GOLDEN_MEGATRON_NOTATION_H_

#include <string>

#include "core/json/json_reader.h"

namespace ckpt::testing {

// Empty if both say the same; else where they differ and how. `jsonable` in torch_dist_rank.py,
// beside the goldens, defines the golden's notation; it names enum members by name where the file
// has the value, so of those only the class is compared.
std::string DifferenceFromMegatron(const JsonCursor& ours, const JsonCursor& golden);

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_GOLDEN_MEGATRON_NOTATION_H_
