// Where a tool writes text: a file descriptor, or memory in tests. It does not use iostreams:
// starting them costs more than reading a small checkpoint.
#ifndef CKPT_TOOLS_CLI_TEXT_OUTPUT_H_
#define CKPT_TOOLS_CLI_TEXT_OUTPUT_H_

#include <string>
#include <string_view>

#include "core/base/status.h"

namespace ckpt::cli {

// For one thread at a time.
class TextOutput {
 public:
  virtual ~TextOutput() = default;
  // An error is kept for Flush, so that callers need not check every Write.
  virtual void Write(std::string_view text) = 0;
  // Errors: kNoSpace, kIo, from this call or any earlier Write.
  virtual Status Flush() = 0;
};

// An open descriptor, which stays open. Buffered.
class DescriptorOutput final : public TextOutput {
 public:
  // `name` appears in errors: "standard output".
  DescriptorOutput(int descriptor, std::string name);
  DescriptorOutput(const DescriptorOutput&) = delete;
  DescriptorOutput& operator=(const DescriptorOutput&) = delete;
  ~DescriptorOutput() override;

  void Write(std::string_view text) override;
  Status Flush() override;

 private:
  void WriteOut();

  int descriptor_;
  std::string name_;
  std::string buffer_;
  Status failure_;
};

class StringOutput final : public TextOutput {
 public:
  void Write(std::string_view text) override { text_ += text; }
  Status Flush() override { return OkStatus(); }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_TEXT_OUTPUT_H_
