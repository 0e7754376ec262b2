#include "core/yaml/event_limit.h"

#include <algorithm>
#include <exception>
#include <sstream>
#include <string>
#include <utility>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace ckpt {
namespace {

// Leaves the parser, which knows no other way to be stopped.
class TooManyEvents final : public std::exception {};

// "-" makes five: the begins and ends of a document and a list, and no value in it.
constexpr std::size_t kMaxEventsOfByte = 8;

class EventCounter final : public YAML::EventHandler {
 public:
  explicit EventCounter(std::size_t limit) : limit_(limit) {}

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
    if (++count_ > limit_) throw TooManyEvents();
  }

  const std::size_t limit_;
  std::size_t count_ = 0;
};

}  // namespace

Status CheckYamlEvents(std::string_view text) {
  std::istringstream stream{std::string(text)};
  const std::size_t limit =
      std::min(kMaxYamlEvents, kMaxEventsOfByte * std::max<std::size_t>(text.size(), 1));
  EventCounter counter(limit);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(counter)) {
    }
  } catch (const TooManyEvents&) {
    Status status =
        Error(ErrorKind::kResource, "larger than any configuration, or without an end")
            .Expected("at most " + std::to_string(limit) + " values, lists and mappings");
    const bool is_large = limit == kMaxYamlEvents;
    return is_large ? std::move(status)
                    : std::move(status).Hint("a document cannot begin with a comma");
  } catch (const YAML::Exception&) {
    return OkStatus();  // whoever reads the text says what is wrong
  }
  return OkStatus();
}

}  // namespace ckpt
