#include "trainer/data/token_windows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "trainer/data/internal/permutation.h"
#include "trainer/random/philox.h"

namespace ckpt::trainer {
namespace {

// The start of one document in so many is kept; the others are found by adding up lengths. A
// look-up walks half of them on average.
constexpr std::int64_t kDocumentsPerMark = 64;

// The documents in their order in the stream, and where each begins.
class DocumentStream {
 public:
  static Result<DocumentStream> Create(std::shared_ptr<const DocumentSet> documents,
                                       const WindowOptions& options);

  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }
  [[nodiscard]] std::int64_t num_documents() const { return documents_->num_documents(); }

  // REQUIRES: 0 <= begin, begin + out.size() <= num_tokens().
  Status Read(std::int64_t begin, std::span<std::int32_t> out) const;

 private:
  DocumentStream(std::shared_ptr<const DocumentSet> documents, std::optional<Permutation> order)
      : documents_(std::move(documents)), order_(order) {}

  [[nodiscard]] std::int64_t DocumentAt(std::int64_t place) const {
    if (!order_) return place;
    return static_cast<std::int64_t>((*order_)[static_cast<std::uint64_t>(place)]);
  }

  std::shared_ptr<const DocumentSet> documents_;
  std::optional<Permutation> order_;
  std::vector<std::int64_t> marks_;  // where the documents at places 0, 64, 128, … begin
  std::int64_t num_tokens_ = 0;
};

Result<DocumentStream> DocumentStream::Create(std::shared_ptr<const DocumentSet> documents,
                                              const WindowOptions& options) {
  const std::int64_t num_documents = documents->num_documents();
  std::optional<Permutation> order;
  if (options.shuffle_documents && num_documents > 0) {
    order.emplace(StreamKey(options.seed, "data.documents"), 0,
                  static_cast<std::uint64_t>(num_documents));
  }
  DocumentStream stream(std::move(documents), order);
  stream.marks_.reserve(static_cast<std::size_t>(num_documents / kDocumentsPerMark + 1));
  for (std::int64_t place = 0; place < num_documents; ++place) {
    if (place % kDocumentsPerMark == 0) stream.marks_.push_back(stream.num_tokens_);
    const std::int64_t length = stream.documents_->DocumentLength(stream.DocumentAt(place));
    if (!CheckedAdd(stream.num_tokens_, length, &stream.num_tokens_)) {
      return Error(ErrorKind::kResource, "more than 2^63 tokens");
    }
  }
  return stream;
}

Status DocumentStream::Read(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto mark = std::prev(std::upper_bound(marks_.begin(), marks_.end(), begin));
  std::int64_t place = (mark - marks_.begin()) * kDocumentsPerMark;
  begin -= *mark;  // from here on an offset into the document at `place`
  for (; !out.empty(); ++place) {
    const std::int64_t document = DocumentAt(place);
    const std::int64_t length = documents_->DocumentLength(document);
    if (begin < length) {
      const auto count = std::min(static_cast<std::size_t>(length - begin), out.size());
      CKPT_RETURN_IF_ERROR(documents_->ReadTokens(document, begin, out.first(count)));
      out = out.subspan(count);
    }
    begin = std::max<std::int64_t>(begin - length, 0);
  }
  return OkStatus();
}

void StartAnewBehind(const DocumentEnds& ends, Sequence& sequence) {
  std::int32_t length = 0;  // of the current document so far
  for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
    const bool is_end = sequence.tokens[i] == ends.token;
    if (is_end && ends.mask_loss) sequence.labels[i] = kNoLabel;
    if (ends.reset_positions) sequence.positions.push_back(length);
    ++length;
    if (!is_end && i + 1 < sequence.tokens.size()) continue;
    if (ends.reset_attention) sequence.lengths.push_back(length);
    length = 0;
  }
}

class TokenWindows final : public SampleSet {
 public:
  TokenWindows(DocumentStream stream, const WindowOptions& options)
      : stream_(std::move(stream)), options_(options) {}

  std::int64_t seq_length() const override { return options_.seq_length; }
  std::int64_t num_samples() const override {
    return (stream_.num_tokens() - 1) / options_.seq_length;
  }

  SourceFacts facts() const override {
    return {.identity = fmt::format("{} documents of {} tokens in sequences of {}",
                                    stream_.num_documents(), stream_.num_tokens(), seq_length())};
  }

  Result<Sequence> ReadSample(std::int64_t sample) const override {
    CKPT_CHECK(sample >= 0 && sample < num_samples());
    std::vector<std::int32_t> window(static_cast<std::size_t>(options_.seq_length) + 1);
    CKPT_RETURN_IF_ERROR(stream_.Read(sample * options_.seq_length, window));
    Sequence sequence;
    sequence.labels.assign(window.begin() + 1, window.end());
    window.pop_back();
    sequence.tokens = std::move(window);
    if (options_.ends) StartAnewBehind(*options_.ends, sequence);
    return sequence;
  }

 private:
  const DocumentStream stream_;
  const WindowOptions options_;
};

}  // namespace

Result<std::unique_ptr<SampleSet>> MakeTokenWindows(std::shared_ptr<const DocumentSet> documents,
                                                    const WindowOptions& options) {
  CKPT_CHECK(options.seq_length > 0);
  CKPT_ASSIGN_OR_RETURN(DocumentStream stream,
                        DocumentStream::Create(std::move(documents), options));
  if (stream.num_tokens() <= options.seq_length) {
    return Error(ErrorKind::kUsage, "the documents do not fill one sequence")
        .Expected(fmt::format("at least {} tokens", options.seq_length + 1))
        .Actual(fmt::format("{} tokens", stream.num_tokens()))
        .Hint("give more data or a smaller seq_length");
  }
  return std::unique_ptr<SampleSet>(std::make_unique<TokenWindows>(std::move(stream), options));
}

}  // namespace ckpt::trainer
