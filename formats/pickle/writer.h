// Writes pickles, value by value.
#ifndef CKPT_FORMATS_PICKLE_WRITER_H_
#define CKPT_FORMATS_PICKLE_WRITER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "formats/pickle/opcodes.h"

namespace ckpt::pickle {

// Which opcodes to use.
enum class Dialect : std::uint8_t {
  kWeightsOnly,  // protocol 2, and of it what torch's weights_only loader accepts: data.pkl
  kProtocol4,    // shorter: `.metadata`
};

// Appends values to one pickle, in postfix order as the format has it. An object of a class:
//
//   writer.Global("argparse", "Namespace").EmptyTuple().NewObject();
//   writer.BeginDict().Text("lr").Float(0.1).EndDict().Build();
//
// Misuse (an End without its Begin, Take with something open) CHECK-fails; a value in the wrong
// place does not.
class PickleWriter {
 public:
  explicit PickleWriter(Dialect dialect);

  PickleWriter& None();
  PickleWriter& Bool(bool value);
  PickleWriter& Int(std::int64_t value);
  // Little-endian two's complement of at most 255 bytes.
  PickleWriter& BigInt(std::string_view twos_complement);
  PickleWriter& Float(double value);
  PickleWriter& Text(std::string_view utf8);
  PickleWriter& BytesValue(ByteSpan bytes);

  PickleWriter& EmptyTuple();
  PickleWriter& BeginTuple();
  PickleWriter& EndTuple();
  PickleWriter& InTuple();  // the value written last → a tuple of it
  PickleWriter& IntTuple(std::span<const std::int64_t> values);
  PickleWriter& BeginList();
  PickleWriter& EndList();
  // Keys and values in turn.
  PickleWriter& BeginDict();
  PickleWriter& EndDict();
  // Entries of the mapping written last, up to EndDict.
  PickleWriter& BeginEntries();

  // A class or function; written in full once, by its number afterwards. Protocol 2 keeps Python
  // 2's module names, which every loader maps back: say "builtins".
  PickleWriter& Global(std::string_view module, std::string_view name);
  PickleWriter& Reduce();        // callable, args tuple → callable(*args)
  PickleWriter& NewObject();     // class, args tuple → class.__new__(class, *args)
  PickleWriter& Build();         // object, state → object
  PickleWriter& PersistentId();  // tuple → what the container makes of it

  // Remembers the value written last; `Recall` writes it again in two to five bytes.
  std::uint32_t Memoize();
  PickleWriter& Recall(std::uint32_t slot);
  // Text that will come again: written in full once.
  PickleWriter& SharedText(std::string_view utf8);

  [[nodiscard]] std::size_t size_bytes() const { return out_.size(); }
  void Reserve(std::size_t bytes) { out_.reserve(bytes); }
  // The finished pickle. Ends the use of this.
  [[nodiscard]] Bytes Take();

 private:
  PickleWriter& Put(Op op);
  PickleWriter& Begin(Op opener);
  PickleWriter& End(Op closer);

  Dialect dialect_;
  Bytes out_;
  int open_ = 0;
  std::uint32_t memo_size_ = 0;
  // Slots by what is in them.
  using Slots = std::map<std::string, std::uint32_t, std::less<>>;
  Slots texts_;
  std::map<std::string, Slots, std::less<>> globals_;  // names, by module
};

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_WRITER_H_
