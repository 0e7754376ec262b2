// The namings that people ask for: what the built-in tables call them, and which of their forms can
// be chosen.
#ifndef CKPT_CONVERTERS_FAMILIES_KNOWN_NAMINGS_H_
#define CKPT_CONVERTERS_FAMILIES_KNOWN_NAMINGS_H_

#include <span>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace ckpt {

// The value of a choice that stands for "as it once was", where the manifest knows.
inline constexpr std::string_view kOriginalChoice = "original";

// A `choice` of the tables, as a conversion asks for it.
struct NamingChoice {
  std::string_view name;
  std::string_view preset = {};  // where nothing is asked for; empty: the first value in the tables
  std::string_view purpose = {};                  // for the help; empty: people are not asked
  std::span<const std::string_view> values = {};  // that people can ask for
};

// The option that asks for the choice of this name: "--expert-layout" of "expert_layout".
[[nodiscard]] std::string OptionOf(std::string_view choice);

struct KnownNaming {
  std::string_view name;  // in the tables
  std::string_view word;  // on the command line
  std::span<const NamingChoice> choices = {};
  bool is_of_megatron = false;
};

[[nodiscard]] std::span<const KnownNaming> KnownNamings();

// What the trainer calls the tensors of a model, in every family. People do not ask for it.
inline constexpr char kTrainerNaming[] = "trainer";

// What the built-in tables call the axes of layers and of experts. In the trainer's naming both are
// numbers in names.
inline constexpr char kLayerAxis[] = "l";
inline constexpr char kExpertAxis[] = "e";

// What published models are called. Digests under it can be compared, whatever the format.
[[nodiscard]] const KnownNaming& PublishedNaming();

// Null for a naming that people do not ask for, or that a mapping of theirs has.
[[nodiscard]] const KnownNaming* FindNaming(std::string_view name);

// Errors: kUsage (no naming has this word).
Result<const KnownNaming*> FindNamingByWord(std::string_view word);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_FAMILIES_KNOWN_NAMINGS_H_
