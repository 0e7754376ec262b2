// Conversions that must survive failures: the one table of them.
#ifndef CKPT_TESTS_RELIABILITY_FLOWS_H_
#define CKPT_TESTS_RELIABILITY_FLOWS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "converters/verbs/convert.h"
#include "core/checkpoint/chosen_forms.h"
#include "core/io/storage.h"

namespace ckpt::testing {

struct Flow {
  const char* name;
  std::string to = "fsdp_dtensor";  // the format of the target
  std::string run = {};             // the source is a training run in this format; empty: a model
  std::optional<int> zstd_level = {};
  std::size_t parity_group = 0;
  int workers = 0;         // that share it; 0: it is not shared
  ChosenForms forms = {};  // of the target
  bool links = false;      // shows the tensors of the source
  int files = 0;           // beside a target of one file, which shows them; 0: all is in the target
  bool repairs = false;    // the source is damaged, and the target its repaired copy
  bool overwrites = false;  // an old target
  int old_files = 0;        // beside that one
};
void PrintTo(const Flow& flow, std::ostream* os);

// The writers, and every way of sharing, packing, replacing and publishing their files: one more of
// these is tried by every suite of them.
const std::vector<Flow>& Flows();
// What made the target that a flow overwrites.
Flow OldOf(Flow flow);

// What is converted: number `seed` of its kind, its matrices of this size if it is a model.
Status WriteSource(Storage& storage, const Flow& flow, std::uint64_t seed, int hidden,
                   const Path& path);
ConvertOptions OptionsOf(const Flow& flow, const Path& source, const Path& target);
Result<ConvertReport> RunFlow(Storage& storage, const Flow& flow, const ConvertOptions& options);

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_FLOWS_H_
