#include "trainer/comm/agreement.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "trainer/comm/exchange_values.h"

namespace ckpt::trainer {

Status TakeTextOfRank0(HostGroup& group, std::string& text) {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> sizes,
                        ExchangeValues(group, std::uint64_t{text.size()}));
  text.resize(sizes.front());
  Bytes all(std::min(kPieceBytes, text.size()) * sizes.size());
  for (std::size_t begin = 0; begin < text.size(); begin += kPieceBytes) {
    const auto piece = std::as_writable_bytes(std::span(text))
                           .subspan(begin)
                           .first(std::min(kPieceBytes, text.size() - begin));
    const MutableByteSpan pieces = MutableByteSpan(all).first(piece.size() * sizes.size());
    CKPT_RETURN_IF_ERROR(group.Exchange(piece, pieces));
    std::ranges::copy(pieces.first(piece.size()), piece.begin());
  }
  return OkStatus();
}

Result<std::vector<std::string>> ExchangeTexts(HostGroup& world, std::string_view mine) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> sizes,
                        ExchangeValues(world, std::uint64_t{mine.size()}));
  const std::uint64_t longest = *std::ranges::max_element(sizes);
  std::vector<std::string> texts(sizes.size());
  if (longest == 0) return texts;
  // All messages get the same length, because Exchange requires it.
  std::string padded(mine);
  padded.resize(longest);
  std::string all(longest * sizes.size(), '\0');
  CKPT_RETURN_IF_ERROR(world.Exchange(AsBytes(padded), std::as_writable_bytes(std::span(all))));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    texts[rank] = all.substr(rank * longest, sizes[rank]);
  }
  return texts;
}

std::string InOneLine(const Status& failure) {
  std::string line;
  for (const char c : failure.ToString()) {
    if (c == '\n') {
      line += "; ";
    } else {
      line += c;
    }
  }
  return line;
}

Status AgreeOn(HostGroup& world, const Status& mine) {
  const Result<std::vector<std::string>> failures =
      ExchangeTexts(world, mine.ok() ? std::string() : InOneLine(mine));
  if (!mine.ok()) return mine;  // also if another rank is gone
  CKPT_RETURN_IF_ERROR(failures.status());
  for (std::size_t rank = 0; rank < failures->size(); ++rank) {
    const std::string& failure = (*failures)[rank];
    if (failure.empty()) continue;
    return Error(ErrorKind::kCancelled, fmt::format("rank {} failed", rank)).Actual(failure);
  }
  return OkStatus();
}

Status AgreeOnText(HostGroup& world, std::string_view mine, std::string_view what) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> texts, ExchangeTexts(world, mine));
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    return Error(ErrorKind::kValueMismatch,
                 fmt::format("rank {} has a different {} than rank 0", rank, what))
        .Expected(texts[0])
        .Actual(texts[rank])
        .Hint("every rank must see the same file system");
  }
  return OkStatus();
}

Result<bool> HoldsEverywhere(HostGroup& world, bool mine) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::uint8_t> all,
                        ExchangeValues(world, static_cast<std::uint8_t>(mine ? 1 : 0)));
  return std::ranges::all_of(all, [](std::uint8_t holds) { return holds != 0; });
}

}  // namespace ckpt::trainer
