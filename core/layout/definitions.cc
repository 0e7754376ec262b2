#include "core/layout/definitions.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/layout/words.h"

namespace ckpt::layout {

Status Definitions::Add(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    return Error(ErrorKind::kBadMetadata, "definition has no '='").Actual(Quote(text));
  }
  std::string_view head = Trim(text.substr(0, equals));
  std::vector<std::string> params;
  if (const std::size_t open = head.find('('); open != std::string_view::npos) {
    if (!head.ends_with(')')) {
      return Error(ErrorKind::kBadMetadata, "parameter list has no ')'").Actual(Quote(head));
    }
    for (const std::string_view param :
         SplitTrimmed(head.substr(open + 1, head.size() - open - 2), ',')) {
      if (!IsIdentifier(param)) {
        return Error(ErrorKind::kBadMetadata, "not a parameter name").Actual(Quote(param));
      }
      params.emplace_back(param);
    }
    head = Trim(head.substr(0, open));
  }
  if (!IsIdentifier(head) || IsBuiltinFunction(head)) {
    return Error(ErrorKind::kBadMetadata, "not a name that can be defined").Actual(Quote(head));
  }
  if (Find(head) >= 0) {
    return Error(ErrorKind::kBadMetadata, "name is defined twice").Actual(Quote(head));
  }
  CKPT_ASSIGN_OR_RETURN(Expr body, Expr::Parse(Trim(text.substr(equals + 1))));
  positions_.emplace(head, static_cast<int>(all_.size()));
  all_.push_back({std::string(head), std::move(params), std::move(body)});
  return OkStatus();
}

int Definitions::Find(std::string_view name) const {
  const auto found = positions_.find(name);
  return found == positions_.end() ? -1 : found->second;
}

// Names inside the body of one definition.
class DefinedNames::Frame final : public Names {
 public:
  Frame(const DefinedNames& all, int visible, std::span<const Value> args)
      : all_(all), visible_(visible), args_(args) {}

  Result<Value> Get(std::string_view name) const override {
    const auto& params = all_.definitions_.all()[static_cast<std::size_t>(visible_)].params;
    const auto param = std::find(params.begin(), params.end(), name);
    if (param != params.end()) return args_[static_cast<std::size_t>(param - params.begin())];
    return all_.GetBefore(visible_, name);
  }
  Result<Value> Call(std::string_view function, std::span<const Value> args) const override {
    return all_.CallBefore(visible_, function, args);
  }

 private:
  const DefinedNames& all_;
  int visible_;
  std::span<const Value> args_;
};

Result<Value> DefinedNames::Get(std::string_view name) const {
  return GetBefore(std::numeric_limits<int>::max(), name);
}

Result<Value> DefinedNames::Call(std::string_view function, std::span<const Value> args) const {
  return CallBefore(std::numeric_limits<int>::max(), function, args);
}

Result<Value> DefinedNames::GetBefore(int visible, std::string_view name) const {
  const int position = definitions_.Find(name);
  if (position < 0 || position >= visible) return ConfigurationNames(config_).Get(name);
  if (const auto found = computed_.find(position); found != computed_.end()) return found->second;
  CKPT_ASSIGN_OR_RETURN(Value value, CallBefore(visible, name, {}));
  computed_.emplace(position, value);
  return value;
}

Result<Value> DefinedNames::CallBefore(int visible, std::string_view function,
                                       std::span<const Value> args) const {
  const int position = definitions_.Find(function);
  if (position < 0 || position >= visible) {
    return Error(ErrorKind::kBadMetadata, "no such function").Actual(Quote(function));
  }
  const Definition& definition = definitions_.all()[static_cast<std::size_t>(position)];
  if (args.size() != definition.params.size()) {
    return Error(ErrorKind::kBadMetadata, "wrong number of arguments for " + Quote(function))
        .Expected(fmt::format("{}", definition.params.size()))
        .Actual(fmt::format("{}", args.size()));
  }
  return definition.body.Evaluate(Frame(*this, position, args));
}

std::set<std::string> DefinedNames::KeysOf(const Expr& expr) const {
  std::set<int> seen;
  std::set<std::string> keys;
  CollectKeys(expr, std::numeric_limits<int>::max(), seen, keys);
  return keys;
}

std::string DefinedNames::Explain(const Expr& expr) const {
  std::string text;
  for (const std::string& key : KeysOf(expr)) {
    if (!text.empty()) text += ", ";
    const auto found = config_.find(key);
    text += key + (found == config_.end() ? " absent" : " = " + FormatValue(found->second));
  }
  return text;
}

void DefinedNames::CollectKeys(const Expr& expr, int visible, std::set<int>& seen,
                               std::set<std::string>& keys) const {
  std::vector<std::string> names = expr.names();
  const std::vector<std::string> calls = expr.calls();
  names.insert(names.end(), calls.begin(), calls.end());
  for (const std::string& name : names) {
    const int position = definitions_.Find(name);
    if (position >= 0 && position < visible) {
      if (!seen.insert(position).second) continue;
      CollectKeys(definitions_.all()[static_cast<std::size_t>(position)].body, position, seen,
                  keys);
    } else if (visible == std::numeric_limits<int>::max() || config_.contains(name)) {
      keys.insert(name);  // inside a body, an unknown name may be a parameter
    }
  }
}

}  // namespace ckpt::layout
