// What options of ckpt-convert take a wrapper's names off a model's keys.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_KEY_REMEDY_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_KEY_REMEDY_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "converters/verbs/model_source.h"
#include "core/base/status.h"
#include "core/checkpoint/index.h"
#include "core/layout/match.h"

namespace ckpt {

// With more tensors than this, remedies that try a model many times are not looked for, because
// that would take too long.
inline constexpr std::size_t kMaxTensorsToTry = 20000;

[[nodiscard]] std::size_t CountProblems(const std::vector<Problem>& problems, ErrorKind kind);
// The keys of those that are kUnmapped.
[[nodiscard]] std::vector<std::string> UnmappedKeys(const std::vector<Problem>& problems);

// With these options of ckpt-convert, every tensor is one of the model or left out.
struct KeyRemedy {
  std::string rename = {};             // "OLD=NEW"; empty: nothing simple helps
  std::vector<std::string> drop = {};  // globs
};

// `keys` are those of the matched tensors in the source, which the options are about: `tensors` may
// have been taken for others. `problems`, of a match of `tensors`, name them so.

// What the problems say of unknown keys, mended by another name for them.
[[nodiscard]] KeyRemedy FindKeyRemedy(const ModelSource& model, const OpenModelOptions& options,
                                      std::span<const GlobalTensor> tensors,
                                      const std::vector<std::string>& keys,
                                      const std::vector<Problem>& problems);

// Globs for what the problems of `match` are about, if these are no more than keys beside the
// model.
[[nodiscard]] std::vector<std::string> GlobsBesideModel(const layout::SourceMatch& match,
                                                        std::span<const GlobalTensor> tensors,
                                                        const std::vector<std::string>& keys,
                                                        const std::vector<Problem>& problems);

// "--drop 'rng' --drop 'optimizer_0.*'".
[[nodiscard]] std::string DropOptions(const std::vector<std::string>& globs);
// REQUIRES: there is a `rename`.
[[nodiscard]] std::string RenameHint(const KeyRemedy& remedy);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_KEY_REMEDY_H_
