// The stack, memo and graph of the pickle virtual machine: what opcodes do, however they are
// written.
#ifndef CKPT_FORMATS_PICKLE_INTERNAL_MACHINE_H_
#define CKPT_FORMATS_PICKLE_INTERNAL_MACHINE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/status.h"
#include "formats/pickle/internal/builder.h"
#include "formats/pickle/internal/literal_reader.h"
#include "formats/pickle/internal/memo.h"
#include "formats/pickle/options.h"

namespace ckpt::pickle {

// What went wrong in an opcode, as yet without its place.
struct Failure {
  ErrorKind kind = ErrorKind::kBadMetadata;
  std::string what;
};

// Every operation returns false after storing a failure; nothing may follow one.
//
// Every stack slot knows `base`, the size of the arena when the making of its value began: all
// nodes that only this value refers to lie from there on. When a reducer turns the value into a
// record, the arena rolls back to its base, unless
//   - a memo slot that is still to be read holds one of those nodes (`memo_high_`), or
//   - an older container may refer to them: it came back from the memo and could have been changed
//   (`floor_`).
class Machine {
 public:
  // For the pickle that starts at `options.start` of `bytes`. Both must outlive this.
  Machine(ByteSpan bytes, const PickleOptions& options);

  // A node that exists already: None, a truth value, the empty tuple.
  bool PushExisting(NodeId node) {
    Push(node, builder_.next());
    return true;
  }
  bool PushInt(std::int64_t value) { return Push(builder_.AddInt(value)); }
  // Little-endian two's complement of any length.
  bool PushLong(std::string_view twos_complement);
  bool PushFloat(double value) { return Push(builder_.AddFloat(value)); }
  bool PushText(NodeKind kind, std::string_view text);
  // Text of Python 2, which is bytes if it is not UTF-8.
  bool PushPython2Text(std::string_view text);
  bool PushGlobal(std::string_view module, std::string_view name);
  bool PushEmpty(NodeKind container) { return Push(builder_.AddContainer(container)); }
  bool PushFromMark(NodeKind container);
  bool PushTuple(std::size_t count);

  // Into the container below, one item or all above the mark.
  bool Append();
  bool AppendAll();
  bool SetItem();
  bool SetAllItems();
  bool AddAllItems();

  bool StackGlobal();
  bool Call();
  bool NewObject(bool with_kwargs);
  bool Build();
  bool PersistentId();

  void Mark() { marks_.push_back(stack_.size()); }
  bool Pop();
  bool PopMark();
  bool Duplicate();

  bool Memoize();
  bool Remember(std::uint64_t slot) {
    if (!Need(1)) return false;
    memo_has_gap_ = memo_has_gap_ || slot > memo_size_;
    memo_size_ = std::max(memo_size_, slot + 1);
    if (memo_.IsRead(slot)) {
      memo_.Set(slot, stack_.back().node);
      memo_high_ = std::max(memo_high_, stack_.back().node);
    }
    return true;
  }
  // Pushes what the slot holds. If that is a class and `rest`, the bytes behind the opcode, makes a
  // whole instance of it, that may be read at once: `used` says how many bytes it took.
  bool Recall(std::uint64_t slot, ByteSpan rest, std::size_t* used);

  // After every opcode: none adds more than a few nodes.
  bool CheckLimits() {
    const bool ok = builder_.next() <= options_.max_nodes && stack_.size() <= options_.max_stack &&
                    marks_.size() <= options_.max_stack;
    return ok || PastLimits();
  }
  // STOP: there must be one value.
  bool Finish();
  // REQUIRES: Finish returned true. Ends the use of this.
  [[nodiscard]] std::pair<Graph, NodeId> Take() && {
    return {std::move(builder_).Take(), stack_.back().node};
  }

  // Stores a failure; returns false.
  bool Fail(ErrorKind kind, std::string what);
  [[nodiscard]] const Failure& failure() const { return failure_; }

 private:
  struct Slot {
    NodeId node;
    NodeId base;
  };

  [[nodiscard]] std::size_t depth() const {
    return stack_.size() - (marks_.empty() ? 0 : marks_.back());
  }
  bool Need(std::size_t count) { return depth() >= count || Malformed("pickle stack underflow"); }
  void Push(NodeId node, NodeId base) { stack_.push_back({node, base}); }
  // Of a node just added; small integers always exist.
  bool Push(NodeId node) {
    Push(node, node < kFirstFreeNode ? builder_.next() : node);
    return true;
  }
  // The topmost `count` nodes. Valid until the next call.
  std::span<const NodeId> PopNodes(std::size_t count, NodeId* base = nullptr);
  // Those above the last mark; takes the mark away.
  bool PopToMark(std::span<const NodeId>* items, NodeId* base = nullptr);

  // `items` into the list or set on the stack, or into the parts of an object that is one.
  bool Extend(NodeKind container, std::string_view done, std::span<const NodeId> items);
  bool SetItemsOf(std::span<const NodeId> items);
  bool TakeLiteral(NodeId cls, ByteSpan rest, std::size_t* used);
  void ForbidRollback() { floor_ = builder_.next(); }
  [[nodiscard]] NodeKind kind(NodeId node) const { return builder_.graph().kind(node); }

  bool PastLimits();
  bool Malformed(std::string what) { return Fail(ErrorKind::kBadMetadata, std::move(what)); }

  const PickleOptions& options_;
  std::uint64_t pickle_bytes_;

  GraphBuilder builder_;
  std::vector<Slot> stack_;
  std::vector<std::size_t> marks_;  // stack sizes
  std::vector<NodeId> scratch_;

  Memo memo_;
  LiteralReader literals_;
  std::uint64_t memo_size_ = 0;  // one past the highest slot
  bool memo_has_gap_ = false;    // some slot below may not be set
  NodeId memo_high_ = 0;         // the newest node in a slot that something reads
  NodeId floor_ = 0;             // no rollback to before this
  Failure failure_;
};

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_INTERNAL_MACHINE_H_
