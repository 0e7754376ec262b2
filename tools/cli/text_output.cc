#include "tools/cli/text_output.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ckpt::cli {
namespace {

constexpr std::size_t kBufferBytes = 1 << 16;

}  // namespace

DescriptorOutput::DescriptorOutput(int descriptor, std::string name)
    : descriptor_(descriptor), name_(std::move(name)) {}

DescriptorOutput::~DescriptorOutput() { WriteOut(); }

void DescriptorOutput::Write(std::string_view text) {
  if (!failure_.ok()) return;
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) WriteOut();
}

Status DescriptorOutput::Flush() {
  WriteOut();
  return failure_;
}

void DescriptorOutput::WriteOut() {
  std::string_view rest = buffer_;
  while (!rest.empty() && failure_.ok()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      failure_ = ErrnoError(errno, "write", name_);
    }
  }
  buffer_.clear();
}

}  // namespace ckpt::cli
