// Settings as plain values, although Python or numpy has a class of its own for them.
#ifndef CKPT_FORMATS_MEGATRON_INTERNAL_PLAIN_SETTING_H_
#define CKPT_FORMATS_MEGATRON_INTERNAL_PLAIN_SETTING_H_

#include <array>

#include "core/base/result.h"
#include "core/layout/value.h"
#include "formats/megatron/stored_settings.h"

namespace ckpt {
class JsonCursor;
}  // namespace ckpt

namespace ckpt::megatron {

// Errors of all: kUnsupported (the value is of another class, which the error names), kBadMetadata
// (it is plain, and of another kind).

// A number of Python's or numpy's, or a tensor of one.
Result<double> PlainNumber(const SettingValue& value);
Result<bool> PlainBool(const JsonCursor& value);
// A tuple of two numbers, or a list.
Result<std::array<double, 2>> PlainPair(const SettingValue& value);
// A number, a truth value, a text, or a list of them.
Result<layout::Value> PlainValue(const JsonCursor& value);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_INTERNAL_PLAIN_SETTING_H_
