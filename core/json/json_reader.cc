#include "core/json/json_reader.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/check.h"
#include "core/base/quote.h"
#include "core/base/units.h"

namespace ckpt {

struct JsonCursor::Node {
  JsonKind kind = JsonKind::kNull;
  bool boolean = false;
  std::int64_t integer = 0;            // kInt
  std::uint64_t unsigned_integer = 0;  // kUint: numbers without a sign
  double number = 0;
  std::string text;
  std::vector<Node> children;        // array elements, or member values
  std::vector<std::string> keys;     // of an object, parallel to children
  std::vector<std::uint32_t> order;  // member positions sorted by key
};

namespace {

// Builds a tree from nlohmann's SAX events. It keeps the order of members, finds duplicate keys and
// is searched in O(log n).
template <typename Node>
class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(Node& root, int max_depth) : max_depth_(max_depth) { open_.push_back(&root); }

  Status status = OkStatus();

  bool null() override { return Place({}); }
  bool boolean(bool value) override {
    Node node;
    node.kind = JsonKind::kBool;
    node.boolean = value;
    return Place(std::move(node));
  }
  bool number_integer(std::int64_t value) override {
    Node node;
    node.kind = JsonKind::kInt;
    node.integer = value;
    return Place(std::move(node));
  }
  bool number_unsigned(std::uint64_t value) override {
    Node node;
    node.kind = JsonKind::kUint;
    node.unsigned_integer = value;
    return Place(std::move(node));
  }
  bool number_float(double value, const std::string& /*text*/) override {
    Node node;
    node.kind = JsonKind::kFloat;
    node.number = value;
    return Place(std::move(node));
  }
  bool string(std::string& value) override {
    Node node;
    node.kind = JsonKind::kText;
    node.text = std::move(value);
    return Place(std::move(node));
  }
  bool binary(nlohmann::json::binary_t& /*value*/) override { return false; }  // not in JSON text
  bool key(std::string& value) override {
    open_.back()->keys.push_back(std::move(value));
    return true;
  }
  bool start_object(std::size_t /*size*/) override { return Enter(JsonKind::kObject); }
  bool start_array(std::size_t /*size*/) override { return Enter(JsonKind::kArray); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool end_object() override {
    Node& object = *open_.back();
    open_.pop_back();
    object.order.resize(object.keys.size());
    for (std::uint32_t i = 0; i < object.order.size(); ++i) object.order[i] = i;
    std::sort(object.order.begin(), object.order.end(),
              [&](auto a, auto b) { return object.keys[a] < object.keys[b]; });
    for (std::size_t i = 0; i + 1 < object.order.size(); ++i) {
      if (object.keys[object.order[i]] == object.keys[object.order[i + 1]]) {
        status = Error(ErrorKind::kBadMetadata, "duplicate JSON key")
                     .Actual(Quote(object.keys[object.order[i]]));
        return false;
      }
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*last_token*/,
                   const nlohmann::json::exception& error) override {
    status = Error(ErrorKind::kBadMetadata, fmt::format("not valid JSON at byte {}", position))
                 .Actual(error.what());
    return false;
  }

 private:
  // `open_` holds pointers into `children` vectors. Only the innermost vector grows, so they stay
  // valid.
  bool Place(Node node) {
    if (!root_placed_) {
      *open_.back() = std::move(node);
      root_placed_ = true;
      return true;
    }
    open_.back()->children.push_back(std::move(node));
    return true;
  }
  bool Enter(JsonKind kind) {
    if (static_cast<int>(open_.size()) > max_depth_) {
      status = Error(ErrorKind::kResource, "JSON is nested too deeply")
                   .Expected(fmt::format("at most {} levels", max_depth_));
      return false;
    }
    Node node;
    node.kind = kind;
    const bool is_root = !root_placed_;
    Place(std::move(node));
    open_.push_back(is_root ? open_.back() : &open_.back()->children.back());
    return true;
  }

  std::vector<Node*> open_;
  bool root_placed_ = false;
  int max_depth_;
};

}  // namespace

std::string_view JsonKindName(JsonKind kind) {
  switch (kind) {
    case JsonKind::kNull:
      return "null";
    case JsonKind::kBool:
      return "boolean";
    case JsonKind::kInt:
    case JsonKind::kUint:
      return "integer";
    case JsonKind::kFloat:
      return "number";
    case JsonKind::kText:
      return "string";
    case JsonKind::kArray:
      return "array";
    case JsonKind::kObject:
      return "object";
  }
  return "value";
}

JsonKind JsonCursor::kind() const { return node_->kind; }

Status JsonCursor::WrongKind(std::string_view expected) const {
  std::string actual(JsonKindName(node_->kind));
  if (node_->kind == JsonKind::kInt) actual += fmt::format(" {}", node_->integer);
  if (node_->kind == JsonKind::kUint) actual += fmt::format(" {}", node_->unsigned_integer);
  if (node_->kind == JsonKind::kFloat) actual += fmt::format(" {}", node_->number);
  if (node_->kind == JsonKind::kText) actual += " " + Quote(node_->text, 60);
  return Error(ErrorKind::kBadMetadata, "wrong JSON value at " + (where_.empty() ? "/" : where_))
      .Expected(expected)
      .Actual(actual);
}

Result<bool> JsonCursor::Bool() const {
  if (node_->kind != JsonKind::kBool) return WrongKind("boolean");
  return node_->boolean;
}

Result<std::int64_t> JsonCursor::Int64() const {
  if (node_->kind == JsonKind::kInt) return node_->integer;
  if (node_->kind == JsonKind::kUint &&
      node_->unsigned_integer <= static_cast<std::uint64_t>(INT64_MAX)) {
    return static_cast<std::int64_t>(node_->unsigned_integer);
  }
  return WrongKind("64-bit integer");
}

Result<std::uint64_t> JsonCursor::Uint64() const {
  if (node_->kind != JsonKind::kUint) return WrongKind("unsigned integer");
  return node_->unsigned_integer;
}

// Whether a double holds it.
template <typename Integer>
bool IsExact(Integer value) {
  const std::uint64_t magnitude = std::cmp_less(value, 0) ? -static_cast<std::uint64_t>(value)
                                                          : static_cast<std::uint64_t>(value);
  return std::bit_width(magnitude >> std::countr_zero(magnitude | 1ULL << 63)) <=
         std::numeric_limits<double>::digits;
}

Result<double> JsonCursor::Double() const {
  switch (node_->kind) {
    case JsonKind::kFloat:
      return node_->number;
    case JsonKind::kInt:
      if (!IsExact(node_->integer)) break;
      return static_cast<double>(node_->integer);
    case JsonKind::kUint:
      if (!IsExact(node_->unsigned_integer)) break;
      return static_cast<double>(node_->unsigned_integer);
    default:
      break;
  }
  return WrongKind("number that a double holds");
}

Result<std::string> JsonCursor::Text() const {
  if (node_->kind != JsonKind::kText) return WrongKind("string");
  return node_->text;
}

Result<std::vector<std::int64_t>> JsonCursor::Int64Array() const {
  if (node_->kind != JsonKind::kArray) return WrongKind("array of integers");
  std::vector<std::int64_t> values;
  values.reserve(node_->children.size());
  for (std::size_t i = 0; i < node_->children.size(); ++i) {
    const Node& child = node_->children[i];
    const bool fits = child.kind == JsonKind::kInt ||
                      (child.kind == JsonKind::kUint &&
                       child.unsigned_integer <= static_cast<std::uint64_t>(INT64_MAX));
    if (!fits) {
      return JsonCursor(&child, fmt::format("{}/{}", where_, i)).WrongKind("64-bit integer");
    }
    values.push_back(child.kind == JsonKind::kInt
                         ? child.integer
                         : static_cast<std::int64_t>(child.unsigned_integer));
  }
  return values;
}

std::optional<JsonCursor> JsonCursor::Find(std::string_view key) const {
  if (node_->kind != JsonKind::kObject) return std::nullopt;
  const auto it = std::lower_bound(node_->order.begin(), node_->order.end(), key,
                                   [&](auto i, std::string_view k) { return node_->keys[i] < k; });
  if (it == node_->order.end() || node_->keys[*it] != key) return std::nullopt;
  return JsonCursor(&node_->children[*it], where_ + "/" + std::string(key));
}

Result<JsonCursor> JsonCursor::At(std::string_view key) const {
  if (node_->kind != JsonKind::kObject) return WrongKind("object");
  if (const std::optional<JsonCursor> found = Find(key)) return *found;
  return Error(ErrorKind::kBadMetadata, "JSON key is missing")
      .Expected(where_ + "/" + std::string(key));
}

Result<std::vector<JsonCursor>> JsonCursor::Items() const {
  if (node_->kind != JsonKind::kArray) return WrongKind("array");
  std::vector<JsonCursor> items;
  items.reserve(node_->children.size());
  for (std::size_t i = 0; i < node_->children.size(); ++i) {
    items.push_back(JsonCursor(&node_->children[i], fmt::format("{}/{}", where_, i)));
  }
  return items;
}

Result<std::vector<std::pair<std::string, JsonCursor>>> JsonCursor::Members() const {
  if (node_->kind != JsonKind::kObject) return WrongKind("object");
  std::vector<std::pair<std::string, JsonCursor>> members;
  members.reserve(node_->children.size());
  for (std::size_t i = 0; i < node_->children.size(); ++i) {
    members.emplace_back(node_->keys[i],
                         JsonCursor(&node_->children[i], where_ + "/" + node_->keys[i]));
  }
  return members;
}

Result<JsonDocument> JsonDocument::Parse(std::string_view text, std::string_view name,
                                         const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Error(ErrorKind::kResource, "JSON document is too large")
        .File(name)
        .Expected("at most " + FormatByteSize(limits.max_bytes))
        .Actual(FormatByteSize(text.size()));
  }
  auto root = std::make_unique<JsonCursor::Node>();
  TreeBuilder<JsonCursor::Node> builder(*root, limits.max_depth);
  // A byte order mark, comments and trailing text are refused by the parser.
  if (!nlohmann::json::sax_parse(text, &builder)) {
    CKPT_CHECK(!builder.status.ok());
    return std::move(builder.status).File(name);
  }
  return JsonDocument(std::move(root));
}

JsonDocument::JsonDocument(std::unique_ptr<JsonCursor::Node> root) : root_(std::move(root)) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

JsonCursor JsonDocument::root() const { return {root_.get(), ""}; }

}  // namespace ckpt
