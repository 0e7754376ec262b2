// How fast elements are cast from one type to another, or quantised weights decoded, on one thread,
// beside a copy of as many bytes as are read and written.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/json/json_writer.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"
#include "core/tensor/fp8_blocks.h"
#include "core/tensor/mxfp4.h"

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

Bytes RandomBytes(std::size_t count, int least, int most) {
  std::mt19937 rng(1);
  std::uniform_int_distribution<int> byte(least, most);
  Bytes bytes(count);
  for (std::byte& one : bytes) one = static_cast<std::byte>(byte(rng));
  return bytes;
}

// What is timed: `work` reads `in_bytes` and fills `out`.
struct Timed {
  std::size_t in_bytes = 0;
  Bytes out;
  std::function<void(Bytes& out)> work;
};

Timed MakeCast(DType from, DType to, std::size_t count) {
  Bytes in = RandomElements(from, count);
  return {.in_bytes = in.size(), .out = Bytes(count * ElementBytes(to)), .work = [=](Bytes& out) {
            CastElements(from, in, to, out);
          }};
}

// Rows of 7168 elements, in blocks of 128 by 128.
Timed MakeFp8(std::size_t count) {
  constexpr std::int64_t kColumns = 7168;
  constexpr std::int64_t kBlock = 128;
  const auto rows = std::max<std::int64_t>(static_cast<std::int64_t>(count) / kColumns, 1);
  const BlockedMatrix matrix{
      .rows = rows, .columns = kColumns, .block_rows = kBlock, .block_columns = kBlock};
  Bytes codes = RandomBytes(static_cast<std::size_t>(rows * kColumns), 0, 126);
  Bytes scales =
      RandomElements(DType::kFloat32,
                     static_cast<std::size_t>((rows + kBlock - 1) / kBlock * (kColumns / kBlock)));
  const std::size_t size = codes.size();
  return {.in_bytes = size, .out = Bytes(2 * size), .work = [=](Bytes& out) {
            DecodeFp8Blocks(matrix, codes, scales, out);
          }};
}

Timed MakeMxfp4(std::size_t count) {
  const std::size_t blocks_count = std::max<std::size_t>(count / kMxfp4BlockElements, 1);
  Bytes blocks = RandomBytes(blocks_count * kMxfp4BlockBytes, 0, 255);
  Bytes scales = RandomBytes(blocks_count, 110, 130);
  return {.in_bytes = blocks.size() + scales.size(),
          .out = Bytes(blocks_count * kMxfp4BlockElements * 2),
          .work = [=](Bytes& out) { DecodeMxfp4(blocks, scales, out); }};
}

int Main(int argc, char** argv) {
  CLI::App app("Casts or decodes elements, and copies as many bytes.");
  std::string from_name;
  std::string to_name;
  std::size_t count = 0;
  int runs = 1;
  app.add_option("from", from_name, "a dtype, fp8_blocks or mxfp4")->required();
  app.add_option("to", to_name)->required();
  app.add_option("--elements", count)->required();
  app.add_option("--runs", runs);
  CLI11_PARSE(app, argc, argv);
  Timed timed = from_name == "fp8_blocks" ? MakeFp8(count)
                : from_name == "mxfp4"
                    ? MakeMxfp4(count)
                    : MakeCast(ParseDType(from_name).value(), ParseDType(to_name).value(), count);
  const std::size_t moved = timed.in_bytes + timed.out.size();
  // As many bytes again as a cast moves: half of them read, half of them written.
  Bytes copied_from(moved / 2, std::byte{1});
  Bytes copied_to(copied_from.size());
  JsonWriter json;
  json.BeginObject().Key("bytes").Int(moved);
  std::vector<double> cast;
  std::vector<double> copy;
  // The first run touches the pages. The copies come after the casts, because in turn each would
  // put the other's memory out of the cache.
  for (int run = 0; run <= runs; ++run) {
    cast.push_back(Seconds([&] { timed.work(timed.out); }));
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
