// Python values as calls of a PickleWriter, put together like the values themselves: Tuple({Int(1),
// Text("a")}).
#ifndef CKPT_TESTS_FORMATS_PICKLE_WRITTEN_VALUES_H_
#define CKPT_TESTS_FORMATS_PICKLE_WRITTEN_VALUES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "formats/pickle/reader.h"
#include "formats/pickle/writer.h"
#include "tests/testing/matchers.h"

namespace ckpt::pickle {

using Write = std::function<void(PickleWriter&)>;

inline ParsedPickle Parse(const Write& write) {
  PickleWriter writer(Dialect::kProtocol4);
  write(writer);
  auto parsed = ParsePickle(writer.Take(), "p");
  EXPECT_THAT(parsed, ckpt::testing::IsOk());
  return std::move(parsed).value();
}

// What one of the functions under test makes of a value.
template <typename Function>
auto Of(Function function, const Write& write) {
  const ParsedPickle parsed = Parse(write);
  return function(parsed.graph, parsed.root);
}

// module.name(*args)
inline Write Call(const std::string& module, const std::string& name, const Write& args) {
  return [=](PickleWriter& w) {
    w.Global(module, name).BeginTuple();
    args(w);
    w.EndTuple().Reduce();
  };
}
inline const Write kNothing = [](PickleWriter&) {};
inline Write Text(const std::string& text) {
  return [=](PickleWriter& w) { w.Text(text); };
}
inline Write Int(std::int64_t value) {
  return [=](PickleWriter& w) { w.Int(value); };
}
inline Write Raw(const std::string& bytes) {
  return [=](PickleWriter& w) { w.BytesValue(AsBytes(bytes)); };
}
inline Write Float(double value) {
  return [=](PickleWriter& w) { w.Float(value); };
}
inline Write Then(const std::vector<Write>& parts) {
  return [=](PickleWriter& w) {
    for (const Write& part : parts) part(w);
  };
}
inline Write Tuple(const std::vector<Write>& parts) {
  return [=](PickleWriter& w) {
    w.BeginTuple();
    Then(parts)(w);
    w.EndTuple();
  };
}
inline Write List(const std::vector<Write>& parts) {
  return [=](PickleWriter& w) {
    w.BeginList();
    Then(parts)(w);
    w.EndList();
  };
}

}  // namespace ckpt::pickle

#endif  // CKPT_TESTS_FORMATS_PICKLE_WRITTEN_VALUES_H_
