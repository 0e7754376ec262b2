// A pull reader of JSON, for large, regular documents that are converted into something else while
// they are read.
#ifndef CKPT_CORE_JSON_JSON_SCANNER_H_
#define CKPT_CORE_JSON_JSON_SCANNER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/json/json_reader.h"

namespace ckpt {

// Reads one document from front to back. It allocates only the texts it returns, so the caller
// decides how much memory is used.
//
// The first error is kept, and every later call returns false, zero or empty: loops end by
// themselves, and one call of `Finish` at the end is enough.
//
//   JsonScanner scan(text, path);
//   std::string key;
//   for (scan.BeginObject(); scan.NextMember(key);) sizes[key] = scan.Uint();
//   CKPT_RETURN_IF_ERROR(scan.Finish());
//
// Repeated keys are returned as often as they occur; the caller must refuse them. For one thread.
class JsonScanner {
 public:
  // Both views must outlive this. `name` (a path) appears in errors.
  JsonScanner(std::string_view text, std::string_view name);

  // The kind of the next value, judged by its first character. A number counts as kUint unless it
  // has a sign. kNull after an error.
  [[nodiscard]] JsonKind Peek();

  bool BeginObject();
  // False at the end of the object, which is then consumed.
  bool NextMember(std::string& key);
  bool BeginArray();
  bool NextItem();

  std::string Text();
  std::uint64_t Uint();  // refuses signs, fractions, exponents and numbers past 64 bits
  std::int64_t Int();
  std::vector<std::int64_t> Ints();
  // Any value, up to 64 levels deep.
  void Skip();

  // Records an error of the caller at the current place, unless there is an error already.
  void Fail(ErrorKind kind, std::string_view message, std::string_view actual = {});
  [[nodiscard]] bool ok() const { return status_.ok(); }
  // The first error, or kBadMetadata if anything except white space is left. Errors: kBadMetadata,
  // kResource (depth).
  [[nodiscard]] Status Finish();

 private:
  void SkipSpace();
  bool Consume(char wanted);
  void Expected(std::string_view what);
  bool Begin(char open);
  bool Next(char close);
  void AppendEscape(std::string& out);
  std::uint32_t FourHexDigits();
  void SkipNumber();
  void SkipWord(std::string_view word);

  std::string_view text_;
  std::string_view name_;
  std::size_t at_ = 0;
  bool at_first_ = false;  // just after an opening bracket
  int depth_ = 0;
  Status status_;
};

}  // namespace ckpt

#endif  // CKPT_CORE_JSON_JSON_SCANNER_H_
