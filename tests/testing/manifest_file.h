// What a manifest says of a file.
#ifndef CKPT_TESTS_TESTING_MANIFEST_FILE_H_
#define CKPT_TESTS_TESTING_MANIFEST_FILE_H_

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "core/manifest/manifest.h"

namespace ckpt::testing {

inline ManifestFile DescribeContent(std::string name, ByteSpan content) {
  ManifestFile file{.name = std::move(name), .size_bytes = content.size(), .block_crc32c = {}};
  for (std::size_t at = 0; at < content.size(); at += kManifestBlockBytes) {
    const ByteSpan block =
        content.subspan(at, std::min<std::size_t>(kManifestBlockBytes, content.size() - at));
    file.block_crc32c.push_back(Crc32c(block));
    file.block_crc32.push_back(Crc32(block));
  }
  return file;
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_MANIFEST_FILE_H_
