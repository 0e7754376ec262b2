// A bound on what yaml-cpp makes of a text. Its nodes are used where a text is read; nothing here
// reads one.
#ifndef CKPT_CORE_YAML_EVENT_LIMIT_H_
#define CKPT_CORE_YAML_EVENT_LIMIT_H_

#include <cstddef>
#include <string_view>

#include "core/base/status.h"

namespace ckpt {

// More than any configuration has.
inline constexpr std::size_t kMaxYamlEvents = 1'000'000;

// Whether the parser gets to the end of `text`, or to a syntax error, after at most kMaxYamlEvents
// events, and no more than its length allows: the begin or the end of a document, list or mapping,
// a plain value, an alias. yaml-cpp 0.7 never ends where a document begins with a comma, and takes
// all memory if it makes nodes meanwhile. Call this before YAML::Load. Cost: that of parsing.
//
// Errors: kResource.
[[nodiscard]] Status CheckYamlEvents(std::string_view text);

}  // namespace ckpt

#endif  // CKPT_CORE_YAML_EVENT_LIMIT_H_
