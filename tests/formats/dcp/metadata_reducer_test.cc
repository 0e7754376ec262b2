#include "formats/dcp/internal/metadata_reducer.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/bytes.h"
#include "formats/pickle/reader.h"
#include "formats/pickle/writer.h"

namespace ckpt::dcp {
namespace {

using pickle::Graph;
using pickle::NodeId;
using pickle::NodeKind;
using pickle::Record;

// How the machine may read an instance.
enum class Way : std::uint8_t { kPartByPart, kAtOnce };

// Passes everything on, literals only where they are wanted.
class CountingReducer final : public pickle::Reducer {
 public:
  CountingReducer(MetadataReducer& reducer, Way way) : reducer_(reducer), way_(way) {}

  std::optional<Record> OnCall(const Graph& graph, NodeId callable, NodeId args) override {
    return reducer_.OnCall(graph, callable, args);
  }
  std::optional<Record> OnBuilt(const Graph& graph, NodeId instance, NodeId state) override {
    return reducer_.OnBuilt(graph, instance, state);
  }
  std::optional<Record> OnLiteral(const Graph& graph,
                                  const pickle::InstanceLiteral& instance) override {
    if (way_ == Way::kPartByPart) return std::nullopt;
    const std::optional<Record> record = reducer_.OnLiteral(graph, instance);
    if (record) ++num_literals_;
    return record;
  }

  [[nodiscard]] int num_literals() const { return num_literals_; }

 private:
  MetadataReducer& reducer_;
  Way way_;
  int num_literals_ = 0;
};

// All that a parse leaves behind, with the reducer's numbers replaced by what they stand for.
class Transcript {
 public:
  Transcript(ByteSpan bytes, Way way) : reducer_(dims_) {
    CountingReducer reducer(reducer_, way);
    pickle::PickleOptions options;
    options.reducer = &reducer;
    const auto parsed = pickle::ParsePickle(bytes, "m", options);
    num_literals_ = reducer.num_literals();
    if (!parsed.ok()) {
      text_ = parsed.status().ToString();
      return;
    }
    text_ = fmt::format("root {} end {} called", parsed->root, parsed->end);
    for (const auto& global : parsed->graph.CalledGlobals())
      text_ += fmt::format(" {}", global.name);
    for (NodeId node = 0; node < parsed->graph.size(); ++node) {
      text_ += fmt::format("\n{} {}", node, Describe(parsed->graph, node));
    }
  }

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] int num_literals() const { return num_literals_; }

 private:
  [[nodiscard]] std::string DescribeDims(std::uint64_t id) const {
    if (id == kNoOffset) return "no offset";
    const DimsView dims = dims_.Get(static_cast<DimsId>(id));
    return fmt::format("[{}]", fmt::join(dims.begin(), dims.end(), ","));
  }
  [[nodiscard]] std::string Describe(const Record& record) const {
    const std::uint64_t high = record.value >> 32;
    const std::uint64_t low = record.value & 0xFFFFFFFF;
    switch (record.type) {
      case MetadataReducer::kSize:
        return DescribeDims(record.value);
      case MetadataReducer::kChunk:
        return "chunk " + DescribeDims(high) + DescribeDims(low);
      case MetadataReducer::kIndex:
        return "index " + reducer_.keys().Get(static_cast<std::uint32_t>(high)) + DescribeDims(low);
      case MetadataReducer::kStored: {
        const StoredItem& item = reducer_.stored()[record.value];
        return fmt::format("stored {} {} {} {}", reducer_.paths().Get(item.path), item.encoding,
                           item.offset_bytes, item.size_bytes);
      }
      default:
        return fmt::format("record {} {}", record.type, record.value);
    }
  }
  [[nodiscard]] std::string Describe(const Graph& graph, NodeId node) const {
    const std::string kind(pickle::NodeKindName(graph.kind(node)));
    switch (graph.kind(node)) {
      case NodeKind::kRecord:
        return Describe(graph.record(node));
      case NodeKind::kInt:
        return fmt::format("int {}", graph.integer(node));
      case NodeKind::kText:
      case NodeKind::kBytes:
        return fmt::format("{} {}", kind, graph.text(node));
      case NodeKind::kTuple:
      case NodeKind::kList:
      case NodeKind::kDict: {
        const auto items = graph.items(node);
        return fmt::format("{} {}", kind, fmt::join(items.begin(), items.end(), ","));
      }
      case NodeKind::kGlobal:
        return graph.QualifiedName(node);
      case NodeKind::kInstance:
        return fmt::format("instance {} {}", graph.callable(node), graph.state(node));
      default:
        return kind;
    }
  }

  DimsPool dims_;
  MetadataReducer reducer_;
  std::string text_;
  int num_literals_ = 0;
};

// Writes lists of instances as torch does, and sometimes not quite.
class RandomPickle {
 public:
  explicit RandomPickle(std::mt19937_64& rng) : rng_(rng), out_(pickle::Dialect::kProtocol4) {}

  Bytes Write() {
    out_.BeginList();
    for (std::size_t i = 0; i < 12; ++i) {
      switch (Below(3)) {
        case 0:
          Instance("torch.distributed.checkpoint.metadata", "ChunkStorageMetadata",
                   {"offsets", "sizes"});
          break;
        case 1:
          Instance("torch.distributed.checkpoint.metadata", "MetadataIndex",
                   {"fqn", "index", "offset"});
          break;
        default:
          Instance("torch.distributed.checkpoint.filesystem", "_StorageInfo",
                   {"relative_path", "offset", "length", "transform_descriptors"});
      }
      if (Below(4) == 0) MaybeRecall();
    }
    // The last bytes of a pickle are never read as a literal.
    out_.Text(std::string(200, '.')).EndList();
    return out_.Take();
  }

 private:
  std::uint64_t Below(std::uint64_t bound) { return rng_() % bound; }
  bool Rarely() { return Below(12) == 0; }

  void MaybeMemoize() {
    if (Below(4) != 0) slots_.push_back(out_.Memoize());
  }
  void MaybeRecall() {
    if (slots_.empty()) {
      out_.None();
    } else {
      out_.Recall(slots_[Below(slots_.size())]);
    }
  }

  void Instance(std::string_view module, std::string_view name,
                std::vector<std::string_view> fields) {
    if (Rarely()) std::swap(fields.front(), fields.back());
    if (Rarely()) fields.push_back(fields.front());
    if (Below(3) == 0) fields.pop_back();
    out_.Global(module, name).EmptyTuple().NewObject();
    MaybeMemoize();
    out_.BeginDict();
    for (const std::string_view field : fields) {
      out_.SharedText(field);
      Rarely() ? AnyValue() : ValueOf(field);
    }
    out_.EndDict().Build();
  }

  void ValueOf(std::string_view field) {
    if (field == "offsets" || field == "sizes") {
      Size();
    } else if (field == "fqn") {
      out_.SharedText(fmt::format("layer.{}", Below(3)));
    } else if (field == "relative_path") {
      out_.Text(fmt::format("__{}_0.distcp", Below(3)));
      MaybeMemoize();
    } else if (field == "transform_descriptors") {
      out_.None();
    } else if (field == "offset" && Below(2) == 0) {
      Size();
    } else {
      Int();
    }
  }

  void AnyValue() {
    switch (Below(7)) {
      case 0:
        out_.None();
        return;
      case 1:
        out_.Text("h\xC3\xA9");
        return;
      case 2:
        out_.BeginList().Text("stream.zstd/1").EndList();
        return;
      case 3:
        out_.Int(-1);
        return;
      case 4:
        out_.BigInt("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F");
        return;
      case 5:
        out_.BytesValue(AsBytes(std::string_view("b")));
        return;
      default:
        MaybeRecall();
    }
  }

  void Int() {
    const std::uint64_t bits = Below(63);
    out_.Int(static_cast<std::int64_t>(rng_() & ((1ULL << bits) - 1)));
  }

  void Size() {
    out_.Global("torch", "Size");
    std::vector<std::int64_t> dims(Below(11));
    for (std::int64_t& dim : dims) dim = static_cast<std::int64_t>(rng_() >> Below(64));
    out_.IntTuple(dims);
    MaybeMemoize();
    out_.InTuple();
    MaybeMemoize();
    out_.Reduce();
    MaybeMemoize();
  }

  std::mt19937_64& rng_;
  pickle::PickleWriter out_;
  std::vector<std::uint32_t> slots_;
};

TEST(MetadataReducerProperty, LiteralsSayWhatTheirPartsSay) {
  std::mt19937_64 rng(20);
  int num_literals = 0;
  for (int i = 0; i < 400; ++i) {
    SCOPED_TRACE(i);
    const Bytes bytes = RandomPickle(rng).Write();
    const Transcript at_once(bytes, Way::kAtOnce);
    ASSERT_EQ(at_once.text(), Transcript(bytes, Way::kPartByPart).text());
    num_literals += at_once.num_literals();
  }
  EXPECT_GT(num_literals, 800) << "the shortcut must be what is tested";
}

TEST(MetadataReducerProperty, DamagedLiteralsSayWhatTheirPartsSay) {
  std::mt19937_64 rng(21);
  for (int i = 0; i < 1500; ++i) {
    SCOPED_TRACE(i);
    Bytes bytes = RandomPickle(rng).Write();
    for (std::uint64_t flips = 1 + rng() % 2; flips > 0; --flips) {
      bytes[rng() % bytes.size()] ^= static_cast<std::byte>(1U << (rng() % 8));
    }
    if (rng() % 4 == 0) bytes.resize(rng() % bytes.size());
    ASSERT_EQ(Transcript(bytes, Way::kAtOnce).text(), Transcript(bytes, Way::kPartByPart).text());
  }
}

}  // namespace
}  // namespace ckpt::dcp
