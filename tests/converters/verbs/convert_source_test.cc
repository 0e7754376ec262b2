// What a conversion finds wrong or odd in its source: in the configuration, in the weights, in the
// manifest, in what the user asks of them.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <gmock/gmock.h>

#include "converters/verbs/convert.h"
#include "core/base/endian.h"
#include "core/base/hash.h"
#include "formats/safetensors/header.h"
#include "formats/zip/reader.h"
#include "formats/zip/writer.h"
#include "tests/converters/verbs/convert_fixture.h"

namespace ckpt {
namespace {

using testing::Content;
using testing::ConvertTest;
using testing::FailsWith;
using testing::GoldenDir;
using ::testing::HasSubstr;
using testing::IsOk;

// The same repository file, with one bfloat16 tensor turned into a float8 one of as many elements.
void WriteWithFloat8(const std::string& file, const std::string& name, const Path& path) {
  const auto header_bytes = LoadLe<std::uint64_t>(AsBytes(file).data());
  auto header = safetensors::ParseHeader(std::string_view(file).substr(8, header_bytes),
                                         file.size() - 8 - header_bytes, "f");
  ASSERT_THAT(header, IsOk());
  std::ranges::sort(header->tensors, {}, &safetensors::TensorEntry::begin);
  std::string payload;
  for (safetensors::TensorEntry& entry : header->tensors) {
    const bool is_it = entry.name == name;
    const std::uint64_t size = (entry.end - entry.begin) / (is_it ? 2 : 1);
    if (is_it) entry.dtype = safetensors::StoredDType::kF8E4M3;
    const std::uint64_t begin = payload.size();
    payload += file.substr(8 + header_bytes + entry.begin, size);
    entry.begin = begin;
    entry.end = begin + size;
  }
  const Bytes fresh = safetensors::SerializeHeader(header->metadata, header->tensors);
  std::ofstream(path.string(), std::ios::binary) << AsText(fresh) << payload;
}

// A common state whose arguments name another number of layers than 2.
void NameLayers(const Path& common, std::int32_t layers) {
  const auto file = PosixStorage().Open(common);
  ASSERT_THAT(file, IsOk());
  const auto archive = zip::Archive::Open(*file, 0, boost::filesystem::file_size(common));
  ASSERT_THAT(archive, IsOk());
  zip::Writer changed;
  for (const zip::Record& record : archive->records()) {
    const auto bytes = archive->Read(record, 1 << 20);
    ASSERT_THAT(bytes, IsOk());
    std::string text(AsText(*bytes));
    if (record.name == "data.pkl") {
      const std::size_t value = text.find("K\x02", text.find("num_layers"));
      Bytes number = {std::byte{'J'}};  // BININT
      AppendLe(layers, number);
      text.replace(value, 2, AsText(number));
    }
    changed.Add(record.name, AsBytes(text));
  }
  boost::filesystem::remove(common);
  std::ofstream(common.string(), std::ios::binary) << AsText(std::move(changed).Finish()[0].bytes);
}

// One setting that is wrong is one error, whichever tensors it makes too many or too few.
TEST_F(ConvertTest, NamesTheSettingThatContradictsTheTensors) {
  const Path source = dir_.path() / "source";
  boost::filesystem::create_directories(source);
  boost::filesystem::copy_file(Golden("llama-tied-fp32") / "model.safetensors",
                               source / "model.safetensors");
  std::string config = Content(Golden("llama-tied-fp32") / "config.json");
  const std::string layers = "\"num_hidden_layers\": 2";
  ASSERT_NE(config.find(layers), std::string::npos);
  config.replace(config.find(layers), layers.size(), "\"num_hidden_layers\": 3");
  std::ofstream((source / "config.json").string()) << config;
  const auto prepared = PrepareConversion(PosixStorage(), ToFsdp(source));
  ASSERT_THAT(prepared, FailsWith(ErrorKind::kMissing));
  ASSERT_EQ(prepared.status().problems().size(), 1U);
  const Problem& wrong = prepared.status().first();
  EXPECT_THAT(wrong.message, HasSubstr("num_hidden_layers"));
  EXPECT_THAT(wrong.expected, HasSubstr("2, or 9 more tensors"));  // a Llama layer has nine
  EXPECT_EQ(wrong.actual, "3");

  config.replace(config.find("\"num_hidden_layers\": 3"), layers.size(), layers);
  const std::string biases = "\"attention_bias\": false";
  ASSERT_NE(config.find(biases), std::string::npos);
  config.replace(config.find(biases), biases.size(), "\"attention_bias\": true");
  std::ofstream((source / "config.json").string()) << config;
  const auto biased = PrepareConversion(PosixStorage(), ToFsdp(source));
  ASSERT_THAT(biased, FailsWith(ErrorKind::kMissing));
  ASSERT_EQ(biased.status().problems().size(), 1U);
  EXPECT_THAT(biased.status().first().message, HasSubstr("attention_bias"));
  EXPECT_THAT(biased.status().first().expected, HasSubstr("false, or 8 more tensors"));
}

// What is wrong with a tensor is no matter where the tensor does not go along.
TEST_F(ConvertTest, LeavesUnreadableTensorsOut) {
  const Path source = GoldenDir() / "dcp" / "broken" / "chunk_negative" / "ckpt";
  ConvertOptions options = Between("", "safetensors", source, "out");
  const auto whole = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(whole, FailsWith(ErrorKind::kOutOfRange));
  const std::string unreadable = whole.status().first().tensor;
  for (const bool drops : {true, false}) {
    SCOPED_TRACE(drops);
    options.overwrite = true;
    options.model = {};
    if (drops) {
      options.model.drop = {unreadable};
    } else {
      options.model.only = {"alpha*"};
    }
    const auto report = Convert(options);
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(std::ranges::any_of(report->warnings, [&](const Problem& warning) {
      return warning.tensor == unreadable && warning.severity == Severity::kWarning;
    }));
    EXPECT_TRUE(std::ranges::any_of(report->dropped, [&](const LeftOutEntry& entry) {
      return entry.key == unreadable && entry.why == kLeftOutOnRequest;
    }));
  }
  options.model.only = {unreadable};
  EXPECT_THAT(PrepareConversion(PosixStorage(), options), FailsWith(ErrorKind::kOutOfRange));
}

// To look for the names of so many layers in every form would take minutes.
TEST_F(ConvertTest, RefusesFarMoreLayersThanThereAre) {
  const Path source = dir_.path() / "source";
  boost::filesystem::copy(Golden("llama-tied-fp32"), source,
                          boost::filesystem::copy_options::recursive);
  std::string config = Content(source / "config.json");
  const std::string layers = "\"num_hidden_layers\": 2";
  ASSERT_NE(config.find(layers), std::string::npos);
  config.replace(config.find(layers), layers.size(), "\"num_hidden_layers\": 1000000");
  boost::filesystem::remove(source / "config.json");
  std::ofstream((source / "config.json").string()) << config;
  const auto of_config = PrepareConversion(PosixStorage(), ToFsdp(source));
  ASSERT_THAT(of_config, FailsWith(ErrorKind::kShapeMismatch));
  EXPECT_EQ(of_config.status().first().file, (source / "config.json").string());
  EXPECT_EQ(of_config.status().first().expected, "2, as the tensors have");
  EXPECT_EQ(of_config.status().first().actual, "1000000");

  // Where no other number makes the tensors fit.
  ConvertOptions dropped = ToFsdp(source);
  dropped.model.drop = {"model.layers.0.mlp.*"};
  const auto of_other = PrepareConversion(PosixStorage(), dropped);
  ASSERT_THAT(of_other, FailsWith(ErrorKind::kShapeMismatch));
  EXPECT_EQ(of_other.status().first().expected,
            "at most 20, a tensor for each, or as many as a dim has");

  const Path run = dir_.path() / "run";
  boost::filesystem::copy(GoldenDir() / "torch_dist/opt_dp_reshardable_tp2dp2_core016/ckpt", run,
                          boost::filesystem::copy_options::recursive);
  const Path common = run / "iter_0000010/common.pt";
  NameLayers(common, 65536);
  const auto of_args =
      PrepareConversion(PosixStorage(), Between("torch_dist", "fsdp_dtensor", run, "of_args"));
  ASSERT_THAT(of_args, FailsWith(ErrorKind::kShapeMismatch));
  EXPECT_THAT(of_args.status().first().message, HasSubstr("num_hidden_layers"));
  EXPECT_EQ(of_args.status().first().expected, "2, as the tensors have");
  EXPECT_EQ(of_args.status().first().actual, "65536 (args.num_layers)");
}

// Another grouping of the heads has the same tensor shapes: only the run's arguments tell it apart.
TEST_F(ConvertTest, RefusesAConfigurationThatContradictsTheRun) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-untied-bf16"))), IsOk());
  const Path release = dir_.path() / "fsdp" / "release";
  std::string config = Content(release / "hf_assets" / "config.json");
  const auto replace = [&config](const std::string& from, const std::string& to) {
    ASSERT_NE(config.find(from), std::string::npos) << from;
    config.replace(config.find(from), from.size(), to);
  };
  replace("\"num_attention_heads\": 6", "\"num_attention_heads\": 3");
  const Path assets = dir_.path() / "assets";
  boost::filesystem::create_directories(assets);
  std::ofstream((assets / "config.json").string()) << config;
  ConvertOptions back = ToHf(dir_.path() / "fsdp");
  back.model.assets = assets;
  EXPECT_THAT(PrepareConversion(PosixStorage(), back), FailsWith(ErrorKind::kValueMismatch));
}

// Weights alone do not tell: what the run computed with them, its arguments say.
TEST_F(ConvertTest, WarnsOfAConfigurationThatComputesSomethingElseThanTheRun) {
  ASSERT_THAT(Convert(ToFsdp(Golden("qwen2-window-fp32"))), IsOk());
  std::string config = Content(Golden("qwen2-window-fp32") / "config.json");
  const std::string key = "\"sliding_window\": ";
  ASSERT_NE(config.find(key), std::string::npos);
  config.insert(config.find(key) + key.size(), "1");
  const Path assets = dir_.path() / "assets";
  boost::filesystem::create_directories(assets);
  std::ofstream((assets / "config.json").string()) << config;
  ConvertOptions back = ToHf(dir_.path() / "fsdp");
  back.model.assets = assets;
  const auto prepared = PrepareConversion(PosixStorage(), back);
  ASSERT_THAT(prepared, IsOk());
  ASSERT_EQ(prepared->warnings.size(), 1U);
  EXPECT_EQ(prepared->warnings[0].message, "config.json means another window_size than the run's");
  EXPECT_EQ(prepared->warnings[0].file, (assets / "config.json").string());
}

// Rows behind the vocabulary are zeros where a conversion added them. Training may have used them.
TEST_F(ConvertTest, SaysWhichPaddingOfTheVocabularyIsNotZero) {
  const Path source = dir_.path() / "source";
  boost::filesystem::create_directories(source);
  for (const std::string name : {"config.json", "model.safetensors"}) {
    boost::filesystem::copy_file(Golden("llama-tied-fp32") / name, source / name);
  }
  std::string config = Content(source / "config.json");
  config.insert(config.find("\"vocab_size\""), "\"padded_vocab_size\": 160, ");
  std::ofstream((source / "config.json").string()) << config;
  ASSERT_THAT(Convert(ToFsdp(source)), IsOk());

  const Path release = dir_.path() / "fsdp" / "release";
  boost::filesystem::remove(release / "ckptkit.json");
  const auto clean = Convert(ToHf(dir_.path() / "fsdp"));
  ASSERT_THAT(clean, IsOk());
  EXPECT_THAT(clean->warnings, ::testing::IsEmpty());

  const auto model = OpenModel(PosixStorage(), release, {});
  ASSERT_THAT(model, IsOk());
  const CheckpointIndex& index = model->source().index();
  const std::string key = "model.module.embedding.word_embeddings.weight";
  const GlobalTensor* embedding = index.FindTensor(key);
  ASSERT_NE(embedding, nullptr);
  ASSERT_EQ(embedding->shape[0], 160);
  const auto array = model->source().Locate(*embedding, index.chunks(*embedding)[0]);
  ASSERT_THAT(array, IsOk());
  const auto row_bytes = static_cast<std::uint64_t>(embedding->shape[1]) * sizeof(float);
  // The last element becomes 1, and the checksum of its record that of the new bytes.
  std::string data = Content(release / "__0_0.distcp");
  const auto checksum = [&] {
    Bytes crc;
    AppendLe(Crc32(AsBytes(data).subspan(array->offset_bytes, 160 * row_bytes)), crc);
    return std::string(AsText(crc));
  };
  const std::string before = checksum();
  data.replace(array->offset_bytes + 160 * row_bytes - 4, 4, std::string("\0\0\x80\x3f", 4));
  const std::string after = checksum();
  for (std::size_t at = 0; (at = data.find(before, at)) != std::string::npos; at += 4) {
    data.replace(at, 4, after);
  }
  std::ofstream((release / "__0_0.distcp").string(), std::ios::binary) << data;
  ConvertOptions back = ToHf(dir_.path() / "fsdp");
  back.target = dir_.path() / "again";
  const auto used = Convert(back);
  ASSERT_THAT(used, IsOk());
  ASSERT_EQ(used->warnings.size(), 1U);
  EXPECT_EQ(used->warnings[0].tensor, key);
  const auto entry = std::find_if(used->dropped.begin(), used->dropped.end(),
                                  [&](const LeftOutEntry& dropped) { return dropped.key == key; });
  ASSERT_NE(entry, used->dropped.end());
  EXPECT_EQ(entry->bytes, 16 * row_bytes);
  ExpectSameFiles(dir_.path() / "hf", back.target);
}

TEST_F(ConvertTest, RefusesASourceThatItsOwnManifestProvesDamaged) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-tied-fp32"))), IsOk());
  ASSERT_THAT(Convert(ToHf(dir_.path() / "fsdp")), IsOk());
  const Path weights = dir_.path() / "hf" / "model.safetensors";
  {
    std::fstream file(weights.string(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-8, std::ios::end);
    file.write("damage", 6);
  }
  ConvertOptions again = ToFsdp(dir_.path() / "hf");
  again.target = dir_.path() / "again";
  EXPECT_THAT(Convert(again), FailsWith(ErrorKind::kChecksum));
  EXPECT_FALSE(boost::filesystem::exists(again.target));
}

TEST_F(ConvertTest, RefusesASingleFileThatTheManifestBesideItProvesDamaged) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-tied-fp32"))), IsOk());
  ASSERT_THAT(Convert(ToHf(dir_.path() / "fsdp")), IsOk());
  const Path weights = dir_.path() / "hf" / "model.safetensors";
  ConvertOptions again = ToFsdp(weights);
  again.target = dir_.path() / "again";
  again.overwrite = true;
  EXPECT_THAT(Convert(again), IsOk());
  {
    std::fstream file(weights.string(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-8, std::ios::end);
    file.write("damage", 6);
  }
  EXPECT_THAT(Convert(again), FailsWith(ErrorKind::kChecksum));
}

TEST_F(ConvertTest, TellsWhatAReaderOfTheSourceIsWarnedOf) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-tied-fp32"))), IsOk());
  const Path stranger = dir_.path() / "fsdp" / "release" / "__7_0.distcp";
  std::ofstream(stranger.string()) << "of an earlier save";
  const auto report = Convert(ToHf(dir_.path() / "fsdp"));
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->warnings.size(), 1U);
  EXPECT_EQ(report->warnings[0].kind, ErrorKind::kLeftover);
  EXPECT_EQ(report->warnings[0].file, stranger.string());
}

TEST_F(ConvertTest, TellsWhichTypeIsNotConverted) {
  const Path source = dir_.path() / "source";
  boost::filesystem::create_directories(source);
  boost::filesystem::copy_file(Golden("qwen2-bf16") / "config.json", source / "config.json");
  const std::string name = "model.norm.weight";
  WriteWithFloat8(Content(Golden("qwen2-bf16") / "model.safetensors"), name,
                  source / "model.safetensors");
  ConvertOptions options = ToFsdp(source);
  options.dtype = DType::kFloat32;
  const auto report = Convert(options);
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->warnings.size(), 1U);
  EXPECT_EQ(report->warnings[0].kind, ErrorKind::kUnsupported);
  EXPECT_THAT(report->warnings[0].tensor, ::testing::HasSubstr("norm"));
  options.dtype = std::nullopt;
  options.overwrite = true;
  const auto as_stored = Convert(options);
  ASSERT_THAT(as_stored, IsOk());
  EXPECT_THAT(as_stored->warnings, ::testing::IsEmpty());
}

TEST_F(ConvertTest, RefusesATiedHeadWithOtherValues) {
  // An untied model whose configuration says that it is tied.
  const Path source = dir_.path() / "source";
  boost::filesystem::create_directories(source);
  const auto names = ListRecursively(PosixStorage(), Golden("qwen2-bf16"));
  ASSERT_THAT(names, IsOk());
  for (const std::string& name : *names) {
    boost::filesystem::copy_file(Golden("qwen2-bf16") / name, source / name);
  }
  std::string config = Content(source / "config.json");
  const std::string untied = "\"tie_word_embeddings\": false";
  ASSERT_NE(config.find(untied), std::string::npos);
  config.replace(config.find(untied), untied.size(), "\"tie_word_embeddings\": true");
  std::ofstream((source / "config.json").string()) << config;
  ConvertOptions options = ToFsdp(source);
  options.verify = false;
  EXPECT_THAT(Convert(options), FailsWith(ErrorKind::kValueMismatch));
}

// safetensors' `save_model` keeps a tied weight under the name of the head alone.
TEST_F(ConvertTest, TakesTheHeadOfATiedModelForTheEmbedding) {
  const Path source = dir_.path() / "source";
  boost::filesystem::create_directories(source);
  boost::filesystem::copy_file(Golden("llama-tied-fp32") / "config.json", source / "config.json");
  const std::string file = Content(Golden("llama-tied-fp32") / "model.safetensors");
  const auto header_bytes = LoadLe<std::uint64_t>(AsBytes(file).data());
  auto header = safetensors::ParseHeader(std::string_view(file).substr(8, header_bytes),
                                         file.size() - 8 - header_bytes, "f");
  ASSERT_THAT(header, IsOk());
  for (safetensors::TensorEntry& entry : header->tensors) {
    if (entry.name == "model.embed_tokens.weight") entry.name = "lm_head.weight";
  }
  const Bytes renamed = safetensors::SerializeHeader(header->metadata, header->tensors);
  std::ofstream((source / "model.safetensors").string(), std::ios::binary)
      << AsText(renamed) << file.substr(8 + header_bytes);
  ASSERT_THAT(Convert(ToFsdp(source)), IsOk());
  EXPECT_EQ(DigestAsHf(dir_.path() / "fsdp"), DigestAsHf(Golden("llama-tied-fp32")));
}

// Old repositories store rotary frequencies, which every reader computes: they are left out, and
// the way back still gives the origin's files, less these.
TEST_F(ConvertTest, LeavesOutConstantsAndKeepsTheOrderOfTheRest) {
  const Path source = dir_.path() / "source";
  boost::filesystem::create_directories(source);
  boost::filesystem::copy_file(Golden("llama-tied-fp32") / "config.json", source / "config.json");
  const auto file = PosixStorage().Open(Golden("llama-tied-fp32") / "model.safetensors");
  ASSERT_THAT(file, IsOk());
  const auto header = safetensors::ReadHeader(**file);
  ASSERT_THAT(header, IsOk());
  Bytes payload((*file)->size_bytes() - header->payload_offset);
  ASSERT_THAT((*file)->ReadAt(header->payload_offset, payload), IsOk());
  std::vector<safetensors::TensorEntry> tensors = header->tensors;
  tensors.push_back({.name = "model.layers.0.self_attn.rotary_emb.inv_freq",
                     .dtype = safetensors::StoredDType::kF32,
                     .shape = {4},
                     .begin = payload.size(),
                     .end = payload.size() + 16});
  payload.resize(payload.size() + 16);
  Bytes content = safetensors::SerializeHeader(header->metadata, tensors);
  Append(payload, content);
  ASSERT_THAT(WriteSmallFile(PosixStorage(), source / "model.safetensors", content), IsOk());

  ConvertOptions constants = ToFsdp(source);
  constants.model.only = {"*.inv_freq"};
  EXPECT_THAT(PrepareConversion(PosixStorage(), constants), FailsWith(ErrorKind::kUsage));
  const auto there = Convert(ToFsdp(source));
  ASSERT_THAT(there, IsOk());
  ASSERT_EQ(there->dropped.size(), 1U);
  EXPECT_EQ(there->dropped[0].key, tensors.back().name);
  ASSERT_THAT(Convert(ToHf(dir_.path() / "fsdp")), IsOk());
  EXPECT_EQ(Content(dir_.path() / "hf" / "model.safetensors"),
            Content(Golden("llama-tied-fp32") / "model.safetensors"));
}

// What is about a model and its weights has no use where tensors keep their keys.
TEST_F(ConvertTest, RefusesOptionsOfAModelUnderTheSourcesKeys) {
  const auto fails = [&](const char* to, const auto& set) {
    ConvertOptions options = Between("", to, Golden("llama-tied-fp32"), "out");
    set(options);
    const auto prepared = PrepareConversion(PosixStorage(), options);
    EXPECT_THAT(prepared, FailsWith(ErrorKind::kUsage));
    return prepared.ok() ? std::string() : prepared.status().first().message;
  };
  for (const char* to : {"dcp", "hdf5", "torch_save", "safetensors"}) {
    SCOPED_TRACE(to);
    EXPECT_THAT(fails(to, [](ConvertOptions& o) { o.model.mapping = "/nonexist"; }),
                HasSubstr("--mapping changes nothing"));
    EXPECT_THAT(fails(to, [](ConvertOptions& o) { o.model.model_type = "nope"; }),
                HasSubstr("--model-type changes nothing"));
    EXPECT_THAT(fails(to, [](ConvertOptions& o) { o.model.allow_missing = true; }),
                HasSubstr("--allow-missing changes nothing"));
    EXPECT_THAT(fails(to, [](ConvertOptions& o) { o.weights_only = true; }),
                HasSubstr("--weights-only changes nothing"));
    EXPECT_THAT(fails(to, [](ConvertOptions& o) { o.model.assets = Golden("qwen2-bf16"); }),
                HasSubstr("--hf-assets would replace the configuration"));
  }
}

TEST_F(ConvertTest, RefusesOptionsOfCopiesWithLinks) {
  const auto fails = [&](const auto& set) {
    ConvertOptions options = Between("", "hdf5", GoldenDir() / "dcp/shapes/ckpt", "out.h5");
    options.link = true;
    set(options);
    const auto prepared = PrepareConversion(PosixStorage(), options);
    EXPECT_THAT(prepared, FailsWith(ErrorKind::kUsage));
    return prepared.ok() ? std::string() : prepared.status().first().message;
  };
  EXPECT_THAT(fails([](ConvertOptions& o) { o.worker = WorkerId{.number = 0, .count = 2}; }),
              HasSubstr("nothing for workers to share"));
  EXPECT_THAT(fails([](ConvertOptions& o) { o.finalize = true; }),
              HasSubstr("nothing for workers to share"));
  EXPECT_THAT(fails([](ConvertOptions& o) { o.resume = true; }), HasSubstr("nothing to resume"));
  EXPECT_THAT(fails([](ConvertOptions& o) { o.model.assets = Golden("llama-tied-fp32"); }),
              HasSubstr("--hf-assets changes nothing"));
}

// Objects have keys as tensors have.
TEST_F(ConvertTest, ChoosesAndRenamesObjects) {
  ConvertOptions options = Between("", "dcp", GoldenDir() / "fsdp_dtensor/dense_fsdp2/ckpt", "dcp");
  options.model.drop = {"checkpoint_version"};
  options.model.rename = {{"args", "settings"}};
  ASSERT_THAT(Convert(options), IsOk());
  const auto written = OpenCheckpoint(PosixStorage(), options.target);
  ASSERT_THAT(written, IsOk());
  const CheckpointIndex& index = written->source->index();
  EXPECT_NE(index.FindObject("settings"), nullptr);
  EXPECT_EQ(index.FindObject("args"), nullptr);
  EXPECT_EQ(index.FindObject("checkpoint_version"), nullptr);
  EXPECT_NE(index.FindObject("iteration"), nullptr);
  ConvertOptions without = options;
  without.to.container = *FindFormat("safetensors");
  without.target = dir_.path() / "safetensors";
  const auto refused = PrepareConversion(PosixStorage(), without);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kUsage));
  EXPECT_EQ(refused.status().first().message,
            "--rename is for an object that the target does not hold");
}

TEST_F(ConvertTest, TellsTheNameOfATensorThatHadNone) {
  const Path file = GoldenDir() / "dcp/pt_tensor_root/ckpt/model.pt";
  const auto told = [&](const ConvertOptions& options) {
    const auto prepared = PrepareConversion(PosixStorage(), options);
    EXPECT_THAT(prepared, IsOk());
    std::vector<std::string> messages;
    if (!prepared.ok()) return messages;
    for (const Problem& warning : prepared->warnings) messages.push_back(warning.message);
    return messages;
  };
  for (const char* to : {"safetensors", "dcp", "torch_save", "hdf5"}) {
    SCOPED_TRACE(to);
    ConvertOptions options = Between("", to, file, std::string("of ") + to);
    const std::vector<std::string> messages = told(options);
    ASSERT_EQ(messages.size(), 1U);
    EXPECT_THAT(messages[0], HasSubstr(R"(which the target calls "")"));
    // There it has this name already.
    ASSERT_THAT(Convert(options), IsOk());
    EXPECT_THAT(told(Between("", "safetensors", options.target, "again")), ::testing::IsEmpty());
    options.model.rename = {{"", "weight"}};
    options.target = dir_.path() / "renamed";
    EXPECT_THAT(told(options), ::testing::IsEmpty());
  }
}

TEST_F(ConvertTest, RefusesRenamesThatLoseAKey) {
  const auto fails = [&](std::map<std::string, std::string> rename) {
    ConvertOptions options = Between("", "dcp", GoldenDir() / "dcp/dtypes/ckpt", "out");
    options.model.rename = std::move(rename);
    const auto prepared = PrepareConversion(PosixStorage(), options);
    EXPECT_THAT(prepared, FailsWith(ErrorKind::kUsage));
    return prepared.ok() ? Problem() : prepared.status().first();
  };
  EXPECT_EQ(fails({{"alpha.int8", ""}}).message, "--rename leaves nothing of a key");
  EXPECT_EQ(fails({{"alpha.int8*", "*"}}).tensor, "alpha.int8");
  const Problem collision = fails({{"alpha.int8", "alpha.uint8"}});
  EXPECT_EQ(collision.message, "--rename gives two keys of the source one name");
  EXPECT_EQ(collision.tensor, "alpha.uint8");
  EXPECT_EQ(collision.actual, R"("alpha.int8" and "alpha.uint8")");
  EXPECT_EQ(fails({{"alpha.*", "a.*"}, {"*.int8", "b.*"}}).message,
            "several --rename are for one key");
}

TEST_F(ConvertTest, RenamesKeysOfAnyCharacters) {
  const std::string odd = R"(a=b\*)";  // the pattern of a key with a star
  ConvertOptions there = Between("", "dcp", GoldenDir() / "dcp/sharded/ckpt", "there");
  there.model.rename = {{"plain", odd}};
  ASSERT_THAT(Convert(there), IsOk());
  ConvertOptions back = Between("", "dcp", there.target, "back");
  back.model.rename = {{odd, "plain"}};
  ASSERT_THAT(Convert(back), IsOk());
  for (const auto& [path, key] :
       {std::pair(there.target, "a=b*"), std::pair(back.target, "plain")}) {
    const auto written = OpenCheckpoint(PosixStorage(), path);
    ASSERT_THAT(written, IsOk());
    EXPECT_NE(written->source->index().FindTensor(key), nullptr) << key;
  }
}

// Users look for keys in their files, where wrappers have left their names.
TEST_F(ConvertTest, NamesKeysAsTheSourceHasThem) {
  const Path source = Golden("llama-untied-bf16");
  const std::string key = "_orig_mod.value_head.weight";
  ConvertOptions wrap = Between("", "safetensors", source, "wrapped");
  wrap.model.rename = {{"*", "_orig_mod.*"}, {"lm_head.weight", key}};
  ASSERT_THAT(Convert(wrap), IsOk());
  ConvertOptions there = ToFsdp(wrap.target);
  there.model.assets = source;
  const auto both = PrepareConversion(PosixStorage(), there);
  ASSERT_THAT(both, FailsWith(ErrorKind::kMissing));
  ASSERT_EQ(both.status().problems().size(), 2U);
  EXPECT_EQ(both.status().problems()[0].tensor, "lm_head.weight");
  EXPECT_EQ(both.status().problems()[1].tensor, key);

  there.model.allow_missing = true;
  const auto unmapped = PrepareConversion(PosixStorage(), there);
  ASSERT_THAT(unmapped, FailsWith(ErrorKind::kUnmapped));
  EXPECT_EQ(unmapped.status().first().tensor, key);
  EXPECT_THAT(unmapped.status().first().hint, HasSubstr("--drop '" + key + "'"));
  there.model.drop = {key};
  EXPECT_THAT(Convert(there), IsOk());
}

// A pattern that is mistyped would be obeyed by doing nothing.
TEST_F(ConvertTest, RefusesPatternsThatMatchNothing) {
  const auto fails = [&](const auto& set) {
    ConvertOptions options = ToFsdp(Golden("llama-tied-fp32"));
    set(options);
    const auto prepared = PrepareConversion(PosixStorage(), options);
    EXPECT_THAT(prepared, FailsWith(ErrorKind::kUsage));
    return prepared.ok() ? Problem() : prepared.status().first();
  };
  const std::string mistyped = "model.norm.wieght";
  const Problem drop = fails([&](ConvertOptions& o) { o.model.drop = {"*layers.1*", mistyped}; });
  EXPECT_EQ(drop.message, "--drop matches no key");
  EXPECT_EQ(drop.actual, "\"model.norm.wieght\"");
  EXPECT_EQ(drop.hint, "did you mean \"model.norm.weight\"?");
  EXPECT_EQ(fails([&](ConvertOptions& o) {
              o.model.only = {"*", mistyped};
            }).message,
            "--only matches no key");
  EXPECT_EQ(fails([&](ConvertOptions& o) { o.model.only = {""}; }).actual, "\"\"");
  const Problem left = fails([&](ConvertOptions& o) {
    o.model.only = {"*layers.[0]*"};
    o.model.drop = {"*layers.0.mlp*", "*layers.1.mlp*"};
  });
  EXPECT_EQ(left.message, "--drop removes nothing that --only chooses");
  EXPECT_EQ(left.actual, "\"*layers.1.mlp*\"");
  const Problem nothing = fails([](ConvertOptions& o) {
    o.model.only = {"model.norm.weight"};
    o.model.drop = {"*norm*"};
  });
  EXPECT_EQ(nothing.message, "the patterns leave nothing to convert");
  EXPECT_EQ(nothing.actual, R"(--only "model.norm.weight", --drop "*norm*")");
  const Problem keep = fails([&](ConvertOptions& o) {
    o.dtype = DType::kBfloat16;
    o.keep_fp32 = "ruoter";
  });
  EXPECT_EQ(keep.message, "--keep-fp32 matches no float32 tensor of the target");
  EXPECT_EQ(keep.actual, "\"ruoter\"");
}

}  // namespace
}  // namespace ckpt
