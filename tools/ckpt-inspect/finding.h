// What `verify` found, with the place of damaged bytes as separate fields.
#ifndef CKPT_TOOLS_CKPT_INSPECT_FINDING_H_
#define CKPT_TOOLS_CKPT_INSPECT_FINDING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/json/json_writer.h"
#include "core/tensor/box.h"
#include "tools/cli/streams.h"

namespace ckpt::inspect {

struct DamagePlace {
  std::uint64_t offset_bytes = 0;  // the byte with the flipped bit, or the block
  std::uint64_t size_bytes = 0;    // 1, or the block's size
  std::optional<int> bit = {};
  std::vector<std::string> keys = {};  // tensors and objects that have bytes there
  std::optional<Box> chunk = {};       // if the bytes belong to one chunk of one tensor
  std::string region = {};             // if no key has the bytes: "header", …
};

struct Finding {
  Problem problem;
  std::optional<DamagePlace> place = {};
};

[[nodiscard]] bool HasErrors(const std::vector<Finding>& findings);

// Whether one of the errors is more than that a tensor or object is of a kind that this build does
// not know (kUnsupported). Such an error of a whole file is damage: a flipped bit in the version of
// a manifest looks like that.
[[nodiscard]] bool HasDamage(const std::vector<Finding>& findings);

// Keys of the tensors and objects that are of a kind that this build does not know, sorted, each
// once. Their bytes may be intact.
[[nodiscard]] std::vector<std::string> NotUnderstood(const std::vector<Finding>& findings);

// Prints to standard output, because the findings are the answer here.
void PrintFindings(const std::vector<Finding>& findings, cli::Streams& streams);

// "problems": [{the members of cli::AppendProblemList, and for a place "offset", "length", "bit",
// "keys", "chunk", "region" as far as known}].
void AppendFindings(const std::vector<Finding>& findings, JsonWriter& json);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_FINDING_H_
