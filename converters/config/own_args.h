// Arguments of ours among Megatron's, which passes over them.
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

// `ckptkit_<setting>` is a setting that Megatron's arguments do not say, or say otherwise; None:
// there was none.
inline constexpr std::string_view kOwnPrefix = "ckptkit_";
// What kOwnPrefix means: in every checkpoint whose arguments RunArgs or MegatronArgs made.
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

// Adds those of `values` whose names are not there yet.
void AddMissing(NamedValues values, NamedValues& args);

// Adds every setting that has not been said, in our own words. `back` is what is made of the
// arguments; whether that is enough, `is_said` decides, by name and by whether the very value came
// back.
void AddOwn(const layout::Configuration& settings, const layout::Configuration& back,
            const std::function<bool(const std::string& name, bool comes_back)>& is_said,
            NamedValues& args);

// Puts them over the settings that were made of Megatron's arguments; those that `table` lists as
// `anew` are left alone.
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
