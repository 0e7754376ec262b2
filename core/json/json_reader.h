// Typed access to JSON from outside. Every error says where in the document it is.
#ifndef CKPT_CORE_JSON_JSON_READER_H_
#define CKPT_CORE_JSON_JSON_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"

namespace ckpt {

struct JsonLimits {
  std::uint64_t max_bytes = 512ULL << 20;
  int max_depth = 64;
};

enum class JsonKind : std::uint8_t { kNull, kBool, kInt, kUint, kFloat, kText, kArray, kObject };

// "object", "array", …
std::string_view JsonKindName(JsonKind kind);

// One value of a parsed document, and its place there. A cheap view: the document must outlive it.
class JsonCursor {
 public:
  [[nodiscard]] JsonKind kind() const;
  [[nodiscard]] bool is_null() const { return kind() == JsonKind::kNull; }
  // "/quantization_config/bits"; the root is "".
  [[nodiscard]] const std::string& where() const { return where_; }

  // Errors of all of them: kBadMetadata with the place, the expected kind and the kind found.
  [[nodiscard]] Result<bool> Bool() const;
  [[nodiscard]] Result<std::int64_t> Int64() const;    // refuses fractions and numbers past 63 bits
  [[nodiscard]] Result<std::uint64_t> Uint64() const;  // refuses negative ones too
  [[nodiscard]] Result<double> Double() const;         // exactly this number
  [[nodiscard]] Result<std::string> Text() const;
  [[nodiscard]] Result<std::vector<std::int64_t>> Int64Array() const;

  // The member of an object. Errors: kBadMetadata also if it is absent.
  [[nodiscard]] Result<JsonCursor> At(std::string_view key) const;
  // Nothing if absent, or if this is not an object.
  [[nodiscard]] std::optional<JsonCursor> Find(std::string_view key) const;
  // Elements of an array.
  [[nodiscard]] Result<std::vector<JsonCursor>> Items() const;
  // Members of an object, in document order.
  [[nodiscard]] Result<std::vector<std::pair<std::string, JsonCursor>>> Members() const;

 private:
  friend class JsonDocument;
  struct Node;
  JsonCursor(const Node* node, std::string where) : node_(node), where_(std::move(where)) {}
  [[nodiscard]] Status WrongKind(std::string_view expected) const;

  const Node* node_;
  std::string where_;
};

// A parsed document. Movable; cursors stay valid.
class JsonDocument {
 public:
  // `name` (a path) appears in errors. Errors: kBadMetadata (syntax with byte position, duplicate
  // key, not UTF-8), kResource (too large or too deep).
  static Result<JsonDocument> Parse(std::string_view text, std::string_view name,
                                    const JsonLimits& limits = {});

  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  [[nodiscard]] JsonCursor root() const;

 private:
  explicit JsonDocument(std::unique_ptr<JsonCursor::Node> root);
  std::unique_ptr<JsonCursor::Node> root_;
};

}  // namespace ckpt

#endif  // CKPT_CORE_JSON_JSON_READER_H_
