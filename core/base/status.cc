#include "core/base/status.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/quote.h"

namespace ckpt {

std::string_view KindName(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return "usage";
    case ErrorKind::kNotFound:
      return "not_found";
    case ErrorKind::kAlreadyExists:
      return "already_exists";
    case ErrorKind::kUnmapped:
      return "unmapped";
    case ErrorKind::kMissing:
      return "missing";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kTruncated:
      return "truncated";
    case ErrorKind::kMissingFile:
      return "missing_file";
    case ErrorKind::kChecksum:
      return "checksum";
    case ErrorKind::kBadMetadata:
      return "bad_metadata";
    case ErrorKind::kBadItem:
      return "bad_item";
    case ErrorKind::kCoverage:
      return "coverage";
    case ErrorKind::kOverlap:
      return "overlap";
    case ErrorKind::kOutOfRange:
      return "out_of_range";
    case ErrorKind::kSizeMismatch:
      return "size_mismatch";
    case ErrorKind::kShapeMismatch:
      return "shape_mismatch";
    case ErrorKind::kDtypeMismatch:
      return "dtype_mismatch";
    case ErrorKind::kValueMismatch:
      return "value_mismatch";
    case ErrorKind::kUnsafePath:
      return "unsafe_path";
    case ErrorKind::kUnsafePickle:
      return "unsafe_pickle";
    case ErrorKind::kIncomplete:
      return "incomplete";
    case ErrorKind::kResource:
      return "resource";
    case ErrorKind::kLeftover:
      return "leftover";
    case ErrorKind::kIo:
      return "io";
    case ErrorKind::kSystem:
      return "system";
    case ErrorKind::kNoSpace:
      return "no_space";
    case ErrorKind::kCancelled:
      return "cancelled";
    case ErrorKind::kInternal:
      return "internal";
  }
  return "internal";
}

namespace {

ErrorKind KindOfErrno(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return ErrorKind::kNoSpace;
    case ENOENT:
      return ErrorKind::kNotFound;
    case EEXIST:
      return ErrorKind::kAlreadyExists;
    // The disk returns other bytes than were written, or none.
    case EBADMSG:
    case EIO:
    case EUCLEAN:
    // The name refers to something other than the file that was written.
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOTDIR:
      return ErrorKind::kIo;
    default:
      return ErrorKind::kSystem;
  }
}

}  // namespace

bool IsOfSystem(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kSystem:
    case ErrorKind::kNoSpace:
    case ErrorKind::kCancelled:
    case ErrorKind::kInternal:
      return true;
    default:
      return false;
  }
}

bool IsUnread(ErrorKind kind) { return IsOfSystem(kind) || kind == ErrorKind::kIo; }

std::string Describe(const Problem& problem) {
  std::string text(KindName(problem.kind));
  text += ": " + EscapeControls(problem.message);
  if (!problem.file.empty()) text += ": " + EscapeControls(problem.file);
  if (!problem.tensor.empty()) text += ": " + EscapeControls(problem.tensor);
  if (!problem.expected.empty()) text += ": expected " + EscapeControls(problem.expected);
  if (!problem.actual.empty()) {
    text += (problem.expected.empty() ? ": found " : ", found ") + EscapeControls(problem.actual);
  }
  if (!problem.context.empty()) text += " (while " + EscapeControls(problem.context) + ")";
  if (!problem.hint.empty()) text += "\nhint: " + EscapeControls(problem.hint);
  return text;
}

Status::Status(Problem problem) : problems_(std::make_unique<std::vector<Problem>>()) {
  problems_->push_back(std::move(problem));
}

Status::Status(std::vector<Problem> problems) {
  if (!problems.empty()) {
    problems_ = std::make_unique<std::vector<Problem>>(std::move(problems));
  }
}

Status::Status(const Status& other)
    : problems_(other.ok() ? nullptr : std::make_unique<std::vector<Problem>>(*other.problems_)) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) *this = Status(other);
  return *this;
}

ErrorKind Status::kind() const { return first().kind; }

const Problem& Status::first() const {
  CKPT_CHECK(!ok());
  return problems_->front();
}

const std::vector<Problem>& Status::problems() const {
  static const std::vector<Problem> none;
  return ok() ? none : *problems_;
}

Status& Status::Fill(std::string Problem::*field, std::string_view value) {
  if (!ok() && (problems_->front().*field).empty()) problems_->front().*field = value;
  return *this;
}

Status Status::File(std::string_view file) && { return std::move(Fill(&Problem::file, file)); }
Status Status::Tensor(std::string_view t) && { return std::move(Fill(&Problem::tensor, t)); }
Status Status::Expected(std::string_view e) && { return std::move(Fill(&Problem::expected, e)); }
Status Status::Actual(std::string_view a) && { return std::move(Fill(&Problem::actual, a)); }
Status Status::Hint(std::string_view hint) && { return std::move(Fill(&Problem::hint, hint)); }

Status Status::While(std::string_view what) && {
  if (!ok()) {
    for (Problem& problem : *problems_) {
      if (!problem.context.empty()) problem.context += ", ";
      problem.context += what;
    }
  }
  return std::move(*this);
}

void Status::Add(Status other) {
  if (other.ok()) return;
  if (ok()) {
    *this = std::move(other);
    return;
  }
  for (Problem& problem : *other.problems_) problems_->push_back(std::move(problem));
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  std::string text;
  for (const Problem& problem : *problems_) {
    if (!text.empty()) text += '\n';
    text += Describe(problem);
  }
  return text;
}

Status Error(ErrorKind kind, std::string_view message) {
  Problem problem;
  problem.kind = kind;
  problem.message = message;
  return Status(std::move(problem));
}

Status ErrnoError(int error, std::string_view operation, std::string_view file) {
  return Error(KindOfErrno(error), std::string(operation) + ": " + std::strerror(error)).File(file);
}

}  // namespace ckpt
