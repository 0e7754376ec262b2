#include "tools/cli/version.h"

#include <fmt/format.h>
#include <isa-l.h>
#include <openssl/crypto.h>
#include <xxhash.h>
#include <zstd.h>

namespace ckpt::cli {

std::string VersionText(std::string_view tool) {
  const unsigned xxh = XXH_versionNumber();
  return fmt::format("{} {}\nzstd {}, xxHash {}.{}.{}, OpenSSL {}, ISA-L {}.{}.{}", tool,
                     CKPT_VERSION, ZSTD_versionString(), xxh / 10000, xxh / 100 % 100, xxh % 100,
                     OpenSSL_version(OPENSSL_VERSION_STRING), ISAL_MAJOR_VERSION,
                     ISAL_MINOR_VERSION, ISAL_PATCH_VERSION);
}

}  // namespace ckpt::cli
