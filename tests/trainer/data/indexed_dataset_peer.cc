// Indexed datasets for tests against the original: written from standard input, or shown as JSON.
//
//   indexed-dataset-peer write PREFIX TYPE
//       lines of input: [[tokens of a sequence], …], a document each
//   indexed-dataset-peer show PREFIX
//   indexed-dataset-peer windows PREFIX SEQ_LENGTH
//       seq_length + 1 tokens each, documents in their order

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/posix_storage.h"
#include "core/json/json_scanner.h"
#include "core/json/json_writer.h"
#include "tests/trainer/data/indexed_dataset_writer.h"
#include "tests/trainer/data/token_type_names.h"
#include "trainer/data/internal/indexed_dataset.h"
#include "trainer/data/token_windows.h"

namespace ckpt::trainer {
namespace {

using Tokens = std::vector<std::int32_t>;
constexpr std::int64_t kAnyToken = std::int64_t{1} << 31;

Status Write(const Path& prefix, std::string_view type_name) {
  const auto* const known = std::ranges::find(kTokenTypes, type_name, &NamedTokenType::name);
  if (known == kTokenTypes.end()) return Error(ErrorKind::kUsage, "unknown type of tokens");
  CKPT_ASSIGN_OR_RETURN(const auto writer,
                        IndexedDatasetWriter::Create(PosixStorage(), prefix, known->type));
  for (std::string line; std::getline(std::cin, line);) {
    JsonScanner scan(line, "standard input");
    for (scan.BeginArray(); scan.NextItem();) {
      Tokens sequence;
      for (const std::int64_t token : scan.Ints()) {
        sequence.push_back(static_cast<std::int32_t>(token));
      }
      CKPT_RETURN_IF_ERROR(writer->AddSequence(sequence));
    }
    CKPT_RETURN_IF_ERROR(scan.Finish());
    writer->EndDocument();
  }
  return writer->Finish();
}

Status Show(const Path& prefix) {
  CKPT_ASSIGN_OR_RETURN(const auto dataset,
                        IndexedDataset::Open(PosixStorage(), prefix, kAnyToken));
  const DatasetIndex& index = dataset->index();
  JsonWriter json;
  json.BeginObject().Key("type").Text(TokenTypeName(index.type())).Key("lengths").BeginArray();
  for (std::int64_t s = 0; s < index.num_sequences(); ++s) json.Int(index.SequenceLength(s));
  json.End().Key("offsets").BeginArray();
  for (std::int64_t s = 0; s < index.num_sequences(); ++s) json.Int(index.SequenceOffset(s));
  json.End().Key("documents").BeginArray();
  for (std::int64_t d = 0; d < dataset->num_documents(); ++d) {
    Tokens tokens(static_cast<std::size_t>(dataset->DocumentLength(d)));
    CKPT_RETURN_IF_ERROR(dataset->ReadTokens(d, 0, tokens));
    json.Ints(tokens);
  }
  json.End().Key("first_sequences").BeginArray();
  for (std::int64_t d = 0; d <= dataset->num_documents(); ++d) json.Int(index.FirstSequence(d));
  std::puts(json.End().End().Take().c_str());
  return OkStatus();
}

Status ShowWindows(const Path& prefix, std::int64_t seq_length) {
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const DocumentSet> documents,
                        IndexedDataset::Open(PosixStorage(), prefix, kAnyToken));
  CKPT_ASSIGN_OR_RETURN(
      const auto windows,
      MakeTokenWindows(documents, {.seq_length = seq_length, .shuffle_documents = false}));
  JsonWriter json;
  json.BeginArray();
  for (std::int64_t i = 0; i < windows->num_samples(); ++i) {
    CKPT_ASSIGN_OR_RETURN(Sequence window, windows->ReadSample(i));
    window.tokens.push_back(window.labels.back());
    json.Ints(window.tokens);
  }
  std::puts(json.End().Take().c_str());
  return OkStatus();
}

Status Run(const std::vector<std::string>& words) {
  if (words.size() == 3 && words[0] == "write") return Write(words[1], words[2]);
  if (words.size() == 2 && words[0] == "show") return Show(words[1]);
  if (words.size() == 3 && words[0] == "windows")
    return ShowWindows(words[1], std::stoll(words[2]));
  return Error(ErrorKind::kUsage, "write PREFIX TYPE | show PREFIX | windows PREFIX SEQ_LENGTH");
}

}  // namespace
}  // namespace ckpt::trainer

int main(int argc, char** argv) {
  const ckpt::Status status = ckpt::trainer::Run({argv + 1, argv + argc});
  if (status.ok()) return EXIT_SUCCESS;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return EXIT_FAILURE;
}
