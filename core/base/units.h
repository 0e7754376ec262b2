// Byte sizes as people write and read them.
#ifndef CKPT_CORE_BASE_UNITS_H_
#define CKPT_CORE_BASE_UNITS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace ckpt {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

// "512MiB", "5GB" (decimal), "1g" (binary), "4096" (bytes). Errors: kUsage.
Result<std::uint64_t> ParseByteSize(std::string_view text);

// "15.1 GiB", "512 B".
std::string FormatByteSize(std::uint64_t bytes);

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_UNITS_H_
