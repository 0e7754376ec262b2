// DocumentSet: documents as tokens, with random access.
#ifndef CKPT_TRAINER_DATA_DOCUMENT_SET_H_
#define CKPT_TRAINER_DATA_DOCUMENT_SET_H_

#include <cstdint>
#include <span>

#include "core/base/status.h"

namespace ckpt::trainer {

// Thread-safety: all methods may run concurrently.
class DocumentSet {
 public:
  virtual ~DocumentSet() = default;

  [[nodiscard]] virtual std::int64_t num_documents() const = 0;
  // Tokens of a document; may be 0. REQUIRES: 0 <= document < num_documents().
  [[nodiscard]] virtual std::int64_t DocumentLength(std::int64_t document) const = 0;

  // Fills `out` with the document's tokens from `begin` on. Each is at least 0 and below the
  // vocabulary's size.
  // REQUIRES: 0 <= begin, begin + out.size() <= DocumentLength(document).
  // Errors: kOutOfRange (a token outside the vocabulary), those of the file.
  virtual Status ReadTokens(std::int64_t document, std::int64_t begin,
                            std::span<std::int32_t> out) const = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_DOCUMENT_SET_H_
