// JSON output, streamed in order. The tools print it and formats store it.
#ifndef CKPT_CORE_JSON_JSON_WRITER_H_
#define CKPT_CORE_JSON_JSON_WRITER_H_

#include <concepts>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckpt {

// Text as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD; non-ASCII is kept.
[[nodiscard]] std::string JsonQuote(std::string_view text);
// The shortest decimal that reads back as the same double. It always has a point or an exponent.
// REQUIRES: finite.
[[nodiscard]] std::string JsonNumber(double value);

// Appends values to one document. Misuse (a value without its key, an unbalanced end) CHECK-fails.
//
//   JsonWriter json(2);
//   json.BeginObject().Key("tensors").Int(3).End();
class JsonWriter {
 public:
  // Indents by `indent` spaces per level; 0 writes everything on one line without spaces.
  explicit JsonWriter(int indent = 0) : indent_(indent) {}

  JsonWriter& BeginObject() { return Begin('{', '}'); }
  JsonWriter& BeginArray() { return Begin('[', ']'); }
  JsonWriter& End();  // of the innermost object or array
  JsonWriter& Key(std::string_view key);

  JsonWriter& Null() { return Raw("null"); }
  JsonWriter& Bool(bool value) { return Raw(value ? "true" : "false"); }
  template <std::integral T>
  JsonWriter& Int(T value) {
    return Raw(std::to_string(value));
  }
  JsonWriter& Double(double value) { return Raw(JsonNumber(value)); }
  JsonWriter& Text(std::string_view text) { return Raw(JsonQuote(text)); }
  // A value that already is JSON.
  JsonWriter& Raw(std::string_view json);
  // An array of integers on one line.
  template <typename Range>
  JsonWriter& Ints(const Range& values) {
    std::string text = "[";
    for (const auto value : values) {
      if (text.size() > 1) text += indent_ == 0 ? "," : ", ";
      text += std::to_string(value);
    }
    return Raw(text + "]");
  }

  // What was written since the last call, for documents too large to hold in memory. The rest
  // follows later.
  [[nodiscard]] std::string TakeSoFar() { return std::exchange(out_, {}); }
  // The document, or the rest of it. REQUIRES: everything begun has ended.
  [[nodiscard]] std::string Take();

 private:
  struct Level {
    char close;
    bool empty;
    bool key_pending;
  };
  JsonWriter& Begin(char open, char close);
  void Separate();
  void NewLine();

  int indent_;
  std::string out_;
  std::vector<Level> levels_;
};

}  // namespace ckpt

#endif  // CKPT_CORE_JSON_JSON_WRITER_H_
