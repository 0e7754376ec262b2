#include "core/yaml/event_limit.h"

#include <exception>
#include <sstream>
#include <string>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace ckpt {
namespace {

// Leaves the parser, which knows no other way to be stopped.
class TooManyEvents final : public std::exception {};

class EventCounter final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& /*mark*/) override { Count(); }
  void OnDocumentEnd() override { Count(); }
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override { Count(); }
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override { Count(); }
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {
    Count();
  }
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/,
                       YAML::anchor_t /*anchor*/, YAML::EmitterStyle::value /*style*/) override {
    Count();
  }
  void OnSequenceEnd() override { Count(); }
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    Count();
  }
  void OnMapEnd() override { Count(); }

 private:
  void Count() {
    if (++count_ > kMaxYamlEvents) throw TooManyEvents();
  }

  std::size_t count_ = 0;
};

}  // namespace

Status CheckYamlEvents(std::string_view text) {
  std::istringstream stream{std::string(text)};
  EventCounter counter;
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(counter)) {
    }
  } catch (const TooManyEvents&) {
    return Error(ErrorKind::kResource, "larger than any configuration")
        .Expected("at most " + std::to_string(kMaxYamlEvents) + " values, lists and mappings");
  } catch (const YAML::Exception&) {
    return OkStatus();  // whoever reads the text says what is wrong
  }
  return OkStatus();
}

}  // namespace ckpt
