// How fast elements are cast from one type to another, on one thread, beside a copy of as many
// bytes as are read and written.
#include <chrono>
#include <cstddef>
#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/json/json_writer.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"

namespace ckpt {
namespace {

template <typename Work>
double Seconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Values of about one in size, as weights are.
Bytes RandomElements(DType dtype, std::size_t count) {
  std::mt19937 rng(1);
  std::normal_distribution<double> normal;
  Bytes wide(count * sizeof(double));
  for (std::size_t i = 0; i < count; ++i) {
    const double value = normal(rng);
    std::memcpy(wide.data() + i * sizeof value, &value, sizeof value);
  }
  Bytes elements(count * ElementBytes(dtype));
  CastElements(DType::kFloat64, wide, dtype, elements);
  return elements;
}

int Main(int argc, char** argv) {
  CLI::App app("Casts elements, and copies as many bytes.");
  std::string from_name;
  std::string to_name;
  std::size_t count = 0;
  int runs = 1;
  app.add_option("from", from_name)->required();
  app.add_option("to", to_name)->required();
  app.add_option("--elements", count)->required();
  app.add_option("--runs", runs);
  CLI11_PARSE(app, argc, argv);
  const DType from = ParseDType(from_name).value();
  const DType to = ParseDType(to_name).value();

  const Bytes in = RandomElements(from, count);
  Bytes out(count * ElementBytes(to));
  // As many bytes again as a cast moves: half of them read, half of them written.
  Bytes copied_from((in.size() + out.size()) / 2, std::byte{1});
  Bytes copied_to(copied_from.size());
  JsonWriter json;
  json.BeginObject().Key("bytes").Int(in.size() + out.size());
  std::vector<double> cast;
  std::vector<double> copy;
  // The first run touches the pages. The copies come after the casts, because in turn each would
  // put the other's memory out of the cache.
  for (int run = 0; run <= runs; ++run) {
    cast.push_back(Seconds([&] { CastElements(from, in, to, out); }));
  }
  for (int run = 0; run <= runs; ++run) {
    copy.push_back(
        Seconds([&] { std::memcpy(copied_to.data(), copied_from.data(), copied_from.size()); }));
  }
  const auto write = [&](std::string_view name, const std::vector<double>& seconds) {
    json.Key(name).BeginArray();
    for (std::size_t i = 1; i < seconds.size(); ++i) json.Double(seconds[i]);
    json.End();
  };
  write("cast", cast);
  write("copy", copy);
  std::cout << json.End().Take() << "\n";
  return 0;
}

}  // namespace
}  // namespace ckpt

int main(int argc, char** argv) { return ckpt::Main(argc, argv); }
