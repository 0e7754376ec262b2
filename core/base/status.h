// Status: success, or problems that carry all facts of the case: kind, file, tensor, expected,
// actual, hint.
#ifndef CKPT_CORE_BASE_STATUS_H_
#define CKPT_CORE_BASE_STATUS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt {

// What is wrong, as the word that `--json` prints (`KindName`). Append, never rename: scripts match
// on these words.
enum class ErrorKind : std::uint8_t {
  // The caller can change the call.
  kUsage,          // an option or argument makes no sense
  kNotFound,       // no such path, tensor or object
  kAlreadyExists,  // the target exists already
  kUnmapped,       // a source key that no rule of the table maps
  kMissing,        // a key that the target needs and the source lacks
  kUnsupported,    // a feature, version or codec that this build does not know
  // The bytes are wrong. Such an error is never retried.
  kTruncated,      // fewer bytes than announced
  kMissingFile,    // a file that the metadata names is not there
  kChecksum,       // stored and computed checksum differ
  kBadMetadata,    // the index itself cannot be parsed
  kBadItem,        // one stored item cannot be parsed
  kCoverage,       // elements of a tensor that no chunk holds
  kOverlap,        // elements that several chunks hold
  kOutOfRange,     // an offset, length or index outside what contains it
  kSizeMismatch,   // fewer bytes stored than the tensor needs
  kShapeMismatch,  // two shapes that must agree do not
  kDtypeMismatch,  // two dtypes that must agree do not
  kValueMismatch,  // two copies that must be equal are not
  kUnsafePath,     // a name that leaves the checkpoint's directory
  kUnsafePickle,   // a pickle that calls something
  kIncomplete,     // an interrupted save
  kResource,       // announced sizes past any sensible limit
  kLeftover,       // a file that nothing refers to
  // The environment prevents it.
  kIo,         // a file or a device cannot be read or written
  kSystem,     // the system refuses for any file: no memory, handles, permission, network
  kNoSpace,    // the disk is full
  kCancelled,  // the caller asked to stop
  kInternal,   // a bug of ours
};

// "coverage", "unsafe_path", …: the spelling used in JSON and messages.
std::string_view KindName(ErrorKind kind);

// Whether the error is not about the file that it names: another file would fail in the same way.
[[nodiscard]] bool IsOfSystem(ErrorKind kind);

// Whether the system did not give the bytes of a file, so that nothing can be said about them.
[[nodiscard]] bool IsUnread(ErrorKind kind);

enum class Severity : std::uint8_t { kError, kWarning };

// One finding. A field is empty if it is unknown or has no meaning here. Text that came from a file
// is stored unchanged and escaped only when printed.
struct Problem {
  ErrorKind kind = ErrorKind::kInternal;
  Severity severity = Severity::kError;
  std::string message;  // names the broken rule; lower case, no full stop
  std::string file;     // path, with " [offset, +length)" where bytes are meant
  std::string tensor;   // key of the tensor or object
  std::string expected;
  std::string actual;
  std::string hint;     // an action that is likely right
  std::string context;  // what was being done, innermost first
};

// "coverage: <message>: <file>: <tensor>: expected …, found …" and "hint: …" lines, with control
// characters escaped.
std::string Describe(const Problem& problem);

// OK, or at least one problem of severity `kError`. The first one decides `kind()`.
//
//   return Error(ErrorKind::kChecksum, "record CRC-32 differs")
//       .File(path).Tensor(key).Expected(a).Actual(b);
//
// Copies are deep: annotating one never changes another.
class [[nodiscard]] Status {
 public:
  Status() = default;
  explicit Status(Problem problem);
  explicit Status(std::vector<Problem> problems);  // OK if empty
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  [[nodiscard]] bool ok() const { return problems_ == nullptr; }
  // REQUIRES: !ok().
  [[nodiscard]] ErrorKind kind() const;
  [[nodiscard]] const Problem& first() const;
  // Empty when OK.
  [[nodiscard]] const std::vector<Problem>& problems() const;

  // Annotate the first problem. A field that is already set stays. On OK they do nothing.
  Status File(std::string_view file) &&;
  Status Tensor(std::string_view tensor) &&;
  Status Expected(std::string_view expected) &&;
  Status Actual(std::string_view actual) &&;
  Status Hint(std::string_view hint) &&;
  // Adds "while <what>" to every problem and keeps what inner calls added.
  Status While(std::string_view what) &&;

  // Keeps the problems of this status and adds those of `other`.
  void Add(Status other);

  [[nodiscard]] std::string ToString() const;

 private:
  Status& Fill(std::string Problem::*field, std::string_view value);

  std::unique_ptr<std::vector<Problem>> problems_;
};

inline Status OkStatus() { return {}; }
Status Error(ErrorKind kind, std::string_view message);
// What the operating system answered to `operation` on `file`: ENOSPC and EDQUOT are kNoSpace,
// ENOENT is kNotFound, EEXIST is kAlreadyExists. Errors that any file would meet are kSystem,
// others kIo.
Status ErrnoError(int error, std::string_view operation, std::string_view file);

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_STATUS_H_
