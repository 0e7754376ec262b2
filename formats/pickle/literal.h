// A small object that stands in a pickle in one piece, as plain values instead of nodes.
#ifndef CKPT_FORMATS_PICKLE_LITERAL_H_
#define CKPT_FORMATS_PICKLE_LITERAL_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "formats/pickle/graph.h"

namespace ckpt::pickle {

// A field's value.
struct Literal {
  enum class Kind : std::uint8_t {
    kNone,
    kInt,   // `integer`
    kText,  // `text`, which is ASCII
    kNode,  // `node`: an older object that is not a class and does not change any more
    kCall,  // of the class `node` with one argument, a tuple of integers: `integers`
  };
  Kind kind = Kind::kNone;
  NodeId node = kNoNode;
  std::int64_t integer = 0;
  std::string_view text;
  std::span<const std::int64_t> integers;
};

struct LiteralField {
  NodeId name = kNoNode;  // a kText that the memo holds, so the node never goes away
  Literal value;
};

// An instance of a class made without arguments, whose state is a dict.
struct InstanceLiteral {
  NodeId cls = kNoNode;  // a kGlobal
  std::span<const LiteralField> fields;
};

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_LITERAL_H_
