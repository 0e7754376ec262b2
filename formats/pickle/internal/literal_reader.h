// Reads small objects that stand in a pickle in one piece, without making nodes of their parts.
#ifndef CKPT_FORMATS_PICKLE_INTERNAL_LITERAL_READER_H_
#define CKPT_FORMATS_PICKLE_INTERNAL_LITERAL_READER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/bytes.h"
#include "formats/pickle/graph.h"
#include "formats/pickle/internal/memo.h"
#include "formats/pickle/literal.h"

namespace ckpt::pickle {

// Recognizes the way in which a pickler writes an instance whose class and names were written
// before, with a MEMOIZE behind any value:
//
//   class EMPTY_TUPLE NEWOBJ EMPTY_DICT MARK (name value)* SETITEMS BUILD
//
// A million of these make a large `.metadata`. Whatever looks different, and whatever something
// later reads from the memo, is left to the general machine: to decline is always right.
class LiteralReader {
 public:
  // `graph` and `memo` must outlive this.
  LiteralReader(const Graph& graph, Memo& memo) : graph_(&graph), memo_(&memo) {}

  // Tries the instance of `cls` whose EMPTY_TUPLE would be at the start of `bytes`; the next
  // MEMOIZE sets the slot `memo_size`. Nearer than 160 bytes to the end it always declines.
  bool Read(NodeId cls, ByteSpan bytes, std::uint64_t memo_size);

  // Of what was read last. Valid until the next Read and until the graph or the bytes change.
  [[nodiscard]] InstanceLiteral instance() const {
    return {cls_, std::span(fields_).first(num_fields_)};
  }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] std::uint64_t num_memoized() const { return num_memoized_; }

 private:
  static constexpr std::size_t kMaxFields = 8;
  static constexpr std::size_t kMaxIntegers = 8;  // of one tuple

  // These advance `at`. They look at most kLookahead bytes ahead, which Read has checked to exist.
  bool ReadField(const std::byte*& at, const std::byte* end, LiteralField& field);
  bool ReadText(const std::byte*& at, const std::byte* end, Literal& value);
  bool ReadFromMemo(const std::byte*& at, Literal& value);
  bool ReadCall(const std::byte*& at, Literal& value);
  void SkipMemoize(const std::byte*& at);

  const Graph* graph_;
  Memo* memo_;
  NodeId cls_ = kNoNode;
  std::array<LiteralField, kMaxFields> fields_;
  std::array<std::array<std::int64_t, kMaxIntegers>, kMaxFields> integers_{};
  std::size_t num_fields_ = 0;
  std::size_t size_bytes_ = 0;
  std::uint64_t num_memoized_ = 0;
};

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_INTERNAL_LITERAL_READER_H_
