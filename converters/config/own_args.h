// Our own arguments among Megatron's. Megatron ignores them.
#ifndef CKPT_CONVERTERS_CONFIG_OWN_ARGS_H_
#define CKPT_CONVERTERS_CONFIG_OWN_ARGS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "converters/config/translation_table.h"
#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt {

// `ckptkit_<setting>` is a setting that Megatron's arguments cannot express, or express
// differently. None: the setting was absent.
inline constexpr std::string_view kOwnPrefix = "ckptkit_";
// The version of our own arguments, in every checkpoint whose arguments RunArgs or MegatronArgs
// made.
inline constexpr std::string_view kArgsVersion = "ckptkit_args_version";
inline constexpr std::int64_t kArgsVersionNow = 1;
// Why the trainer does not compute this model: a list of reasons.
inline constexpr std::string_view kRefused = "ckptkit_refused";

// What a run of ours notes when it saves: facts about the state, no settings.
struct OwnFacts {
  std::optional<std::string> state_digest = {};  // of the whole state
  // Tells the run's files from those of other runs. A run that is resumed keeps it.
  std::optional<std::string> run_id = {};
  std::optional<double> next_loss = {};  // of the batch that comes next
  // The data in which consumed samples are counted.
  std::optional<std::string> data_identity = {};
};
[[nodiscard]] NamedValues ArgsOf(const OwnFacts& facts);
// Those that `args` have. Errors: kBadMetadata (one is of the wrong kind).
Result<OwnFacts> ReadOwnFacts(const layout::Configuration& args);

[[nodiscard]] bool HasArg(const NamedValues& args, std::string_view name);

// Whether it tells of the state of a run, as OwnFacts do, and nothing of its settings.
[[nodiscard]] bool IsOwnFact(std::string_view name);

// Adds those of `values` whose names are not there yet.
void AddMissing(NamedValues values, NamedValues& args);

// Adds `values`; of those whose names are there already, the new ones count.
void AddOrReplace(NamedValues values, NamedValues& args);

// Adds `ckptkit_<setting>` for every setting that Megatron's arguments do not give back. `back`:
// the settings that are read from those arguments. `is_said` decides by the name of a setting, and
// by whether `back` has the same value of it, whether Megatron's arguments are enough.
void AddOwn(const layout::Configuration& settings, const layout::Configuration& back,
            const std::function<bool(const std::string& name, bool comes_back)>& is_said,
            NamedValues& args);

// Replaces settings that were read from Megatron's arguments by our own arguments, except those
// that `table` lists as `one_way`.
void TakeOwn(const layout::Configuration& args, const TranslationTable& table,
             layout::Configuration& settings);

// Whether two values are the same. NaN is the same as NaN: a setting, not a number to compute with.
[[nodiscard]] bool AreSame(const layout::Value& a, const layout::Value& b);

// Errors: kUnsupported (a later version of this program stored the arguments). Those of Megatron
// have no version.
Status CheckArgsVersion(const layout::Configuration& args);

// Whether RunArgs or MegatronArgs made the arguments. Errors: kUnsupported (of another version; the
// trainer does not compute the model: all reasons).
Result<bool> AreOurs(const layout::Configuration& args);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_CONFIG_OWN_ARGS_H_
