// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "sim/model/load.hpp"
#include "sim/model/safetensors.hpp"
#include "tests/user_error.hpp"

using namespace orrery;

namespace {

namespace fs = std::filesystem;

/// A folder that vanishes with the test.
struct TemporaryFolder {
  fs::path path = fs::temp_directory_path() / ("orrery-safetensors-" + std::to_string(::getpid()));
  TemporaryFolder() { fs::create_directories(path); }
  ~TemporaryFolder() { fs::remove_all(path); }
  std::string file(const std::string& name) const { return (path / name).string(); }
};

std::string little_endian(std::uint64_t value) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(value >> (8 * i) & 255);
  return out;
}

/// A file with this header and as many bytes of data.
std::string file_of(const std::string& header, std::size_t data) {
  return little_endian(header.size()) + header + std::string(data, '\0');
}

std::string header_error(const std::string& bytes) {
  return user_error([&] { parse_safetensors_header(bytes, bytes.size(), "w.safetensors"); });
}

std::string error_of(const std::string& header, std::size_t data) { return header_error(file_of(header, data)); }

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span{values});
}

Model shipped(const std::string& name) {
  return load_model(std::string{ORRERY_SOURCE_DIR} + "/scenarios/models/" + name + ".json");
}

/// All parameters of a model as zeros, under names that `rename` may change or drop.
template <class Rename>
std::vector<TensorToWrite> zeros(const Model& model, const std::vector<float>& buffer, Rename rename) {
  std::vector<TensorToWrite> out;
  for (const Parameter& p : model.parameters) {
    const std::string name = rename(p.name);
    if (name.empty()) continue;
    const auto count = static_cast<std::size_t>(p.elements());
    out.push_back({name, DType::F32, p.shape, std::as_bytes(std::span{buffer.data(), count})});
  }
  return out;
}

std::string same_name(const std::string& name) { return name; }

void write_text(const std::string& path, const std::string& text) { std::ofstream{path, std::ios::binary} << text; }

}  // namespace

TEST_CASE("a header gives names, types, shapes and metadata", "[model][safetensors]") {
  const std::string bytes =
      file_of(R"({"__metadata__": {"format": "pt"}, "b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [4, 16]},)"
              R"( "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}})",
              16);
  const SafetensorsHeader h = parse_safetensors_header(bytes, bytes.size(), "w.safetensors");
  REQUIRE(h.tensors.size() == 2);
  CHECK(h.tensors[0].name == "a");
  CHECK(h.tensors[0].elements() == 1);
  CHECK(h.tensors[1].shape == std::vector<std::int64_t>{2, 3});
  CHECK(h.metadata == std::vector<std::pair<std::string, std::string>>{{"format", "pt"}});
  CHECK(h.parameter_count() == 7);
}

TEST_CASE("a corrupt header is refused with its reason", "[model][safetensors][error]") {
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a": {"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": )" + offsets + "}}";
  };
  CHECK(header_error("abc") == "w.safetensors: not a safetensors file: shorter than 8 bytes");
  CHECK(header_error(little_endian(1ull << 62) + "{}") ==
        "w.safetensors: the header has 4611686018427387904 bytes, more than 100000000");
  CHECK(header_error(little_endian(99) + "{}") == "w.safetensors: the header has 99 bytes, but the file ends after 10");
  CHECK(error_of("[]", 0) == "w.safetensors: the header is not a JSON object");
  CHECK(error_of("", 0) == "w.safetensors: the header is not a JSON object");
  CHECK(error_of(entry("F32", "[2]", "[0, 4]"), 4) == "w.safetensors: tensor 'a' has 4 bytes, but 2 elements of F32");
  CHECK(error_of(entry("F33", "[2]", "[0, 4]"), 4) == "w.safetensors: tensor 'a' has the unknown dtype 'F33'");
  CHECK(error_of(entry("F32", "[4294967296, 4294967296]", "[0, 4]"), 4) ==
        "w.safetensors: tensor 'a' has more than 2^53 elements");
  CHECK(error_of(entry("F32", "[-1]", "[0, 4]"), 4) ==
        "w.safetensors: tensor 'a' has '-1' where a whole number up to 2^53 should stand");
  CHECK(error_of(entry("F32", "1", "[0, 4]"), 4) == "w.safetensors: tensor 'a' needs lists as shape and data_offsets");
  CHECK(error_of(entry("F32", "[1]", "[4, 0]"), 4) == "w.safetensors: tensor 'a' has no valid data_offsets");
  CHECK(error_of(entry("F32", "[1]", "[0]"), 4) == "w.safetensors: tensor 'a' has no valid data_offsets");
  CHECK(error_of(entry("F32", "[1]", "[0, 4]"), 8) == "w.safetensors: the tensors have 4 bytes, the file has 8");
  CHECK(error_of(entry("F32", "[1]", "[4, 8]"), 8) == "w.safetensors: 4 bytes before tensor 'a' belong to no tensor");
  CHECK(error_of(entry("F4", "[3]", "[0, 2]"), 2) == "w.safetensors: tensor 'a' has 2 bytes, but 3 elements of F4");
  CHECK(error_of(R"({"a": {"dtype": "F32", "shape": [1]}})", 4) ==
        "w.safetensors: tensor 'a' must have dtype, shape and data_offsets, and nothing else");
  CHECK(error_of(R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},)"
                 R"( "b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}})",
                 3) == "w.safetensors: tensor 'b' overlaps another one at byte 1");
  CHECK(error_of(R"({"__metadata__": {"a": 1}})", 0) == "w.safetensors: __metadata__ 'a' must be a text");
  CHECK(error_of(R"({"__metadata__": 1})", 0) == "w.safetensors: __metadata__ must be a map of texts");
  CHECK(error_of(R"({"a": {}, "a": {}})", 0).find("duplicate key") != std::string::npos);
}

TEST_CASE("a written file reads back exactly, in every type of weights", "[model][safetensors]") {
  const TemporaryFolder folder;
  const std::vector<float> f32 = {1.5f, -0.0f, 3.4e38f};
  const std::vector<double> f64 = {0.1, -1e300};
  // BF16 0x3FC0 is 1.5, 0xC2C8 is −100; F16 0x3E00 is 1.5, 0x0001 is 2^-24, 0xFC00 is −∞, 0x7BFF is 65504.
  const std::vector<std::uint16_t> bf16 = {0x3FC0, 0xC2C8}, f16 = {0x3E00, 0x0001, 0xFC00, 0x7BFF};
  const std::vector<std::int64_t> i64 = {7};
  const std::string path = folder.file("w.safetensors");
  write_safetensors(path,
                    {{"f32", DType::F32, {3}, bytes_of(f32)},
                     {"bf16", DType::BF16, {2, 1}, bytes_of(bf16)},
                     {"f64", DType::F64, {2}, bytes_of(f64)},
                     {"f16", DType::F16, {4}, bytes_of(f16)},
                     {"i64", DType::I64, {1}, bytes_of(i64)}},
                    {{"format", "pt"}});
  const Weights w{path};
  REQUIRE(w.tensors().size() == 5);
  std::vector<float> three(3), two(2), four(4), one(1);
  w.copy(*w.find("f32"), std::span{three});
  CHECK(three == f32);
  CHECK(std::signbit(three[1]));
  w.copy(*w.find("bf16"), std::span{two});
  CHECK(two == std::vector<float>{1.5f, -100.0f});
  w.copy(*w.find("f16"), std::span{four});
  CHECK(four == std::vector<float>{1.5f, std::ldexp(1.0f, -24), -HUGE_VALF, 65504.0f});
  std::vector<double> doubles(2);
  w.copy(*w.find("f64"), std::span{doubles});
  CHECK(doubles == f64);
  CHECK(w.find("none") == nullptr);
  CHECK(user_error([&] { w.copy(*w.find("i64"), std::span{one}); }) ==
        "tensor 'i64' of type I64 cannot be read as numbers\n  hint: weights in F64, F32, F16 or BF16");
  for (const auto& entry : fs::directory_iterator(folder.path)) CHECK(entry.path().extension() == ".safetensors");
}

TEST_CASE("a written model proves its count and fits its configuration", "[model][safetensors]") {
  const TemporaryFolder folder;
  for (const std::string name :
       {"gpt2-tiny", "llama-tiny", "deepseek-tiny", "t5-tiny", "swin-tiny-test", "dlrm-tiny"}) {
    INFO(name);
    const Model m = shipped(name);
    const std::vector<float> buffer(static_cast<std::size_t>(m.parameter_count()));
    write_safetensors(folder.file("model.safetensors"), zeros(m, buffer, same_name));
    const Weights w{folder.path.string()};
    std::int64_t count = 0;
    for (const StoredTensor& t : w.tensors()) count += t.elements();
    CHECK(count == m.parameter_count());
    CHECK(check_against(m, w).fits());
  }
}

TEST_CASE("names of base models, tied copies and mask buffers are tolerated", "[model][safetensors]") {
  const TemporaryFolder folder;
  const Model m = shipped("gpt2-tiny");
  const std::vector<float> buffer(static_cast<std::size_t>(m.parameter_count()));
  auto tensors = zeros(m, buffer, [](const std::string& n) { return n.substr(std::string{"transformer."}.size()); });
  tensors.push_back({"h.0.attn.bias", DType::F32, {1, 1, 4, 4}, bytes_of(std::vector<float>(16))});
  const std::vector<float> mask(16), head(4096 * 128);
  tensors.back().data = bytes_of(mask);
  tensors.push_back({"lm_head.weight", DType::F32, {4096, 128}, bytes_of(head)});
  write_safetensors(folder.file("model.safetensors"), tensors);
  const WeightCheck check = check_against(m, Weights{folder.path.string()});
  CHECK(check.fits());
  CHECK(check.ignored == std::vector<std::string>{"h.0.attn.bias", "lm_head.weight"});
  REQUIRE(check.found.size() == m.parameters.size());
}

TEST_CASE("what does not fit is told by name", "[model][safetensors]") {
  const TemporaryFolder folder;
  const Model m = shipped("llama-tiny");
  const std::vector<float> buffer(static_cast<std::size_t>(m.parameter_count()));
  auto tensors = zeros(m, buffer, [](const std::string& n) { return n == "model.norm.weight" ? "" : n; });
  tensors.back().shape = {128, 4096};
  tensors.push_back({"surplus", DType::F32, {1}, std::as_bytes(std::span{buffer.data(), 1})});
  write_safetensors(folder.file("w.safetensors"), tensors);
  const Weights w{folder.file("w.safetensors")};
  const WeightCheck check = check_against(m, w);
  CHECK_FALSE(check.fits());
  CHECK(check.missing == std::vector<std::string>{"model.norm.weight"});
  CHECK(check.extra == std::vector<std::string>{"surplus"});
  CHECK(check.misshapen == std::vector<std::string>{"lm_head.weight: [128, 4096] instead of [4096, 128]"});
}

TEST_CASE("shards are read through their index", "[model][safetensors]") {
  const TemporaryFolder folder;
  const std::vector<float> one = {1}, two = {2};
  write_safetensors(folder.file("m-1.safetensors"), {{"a", DType::F32, {1}, bytes_of(one)}});
  write_safetensors(folder.file("m-2.safetensors"), {{"b", DType::F32, {1}, bytes_of(two)}});
  const std::string index = folder.file("model.safetensors.index.json");
  write_text(index, R"({"weight_map": {"b": "m-2.safetensors", "a": "m-1.safetensors"}})");
  const Weights w{folder.path.string()};
  std::vector<float> value(1);
  w.copy(*w.find("b"), std::span{value});
  CHECK(value[0] == 2.0f);

  const auto index_error = [&](const std::string& text) {
    write_text(index, text);
    return user_error([&] { Weights{index}; });
  };
  CHECK(index_error("{}").find("an index of weights needs a weight_map") != std::string::npos);
  CHECK(index_error(R"({"weight_map": {"a": "../m-1.safetensors"}})")
            .find("'../m-1.safetensors' is not the name of a file beside the index") != std::string::npos);
  CHECK(index_error(R"({"weight_map": {"c": "m-1.safetensors"}})").find("tensor 'c' is not in 'm-1.safetensors'") !=
        std::string::npos);
  write_safetensors(folder.file("m-2.safetensors"), {{"a", DType::F32, {1}, bytes_of(two)}});
  CHECK(index_error(R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})") ==
        "tensor 'a' is in two files");
  CHECK(user_error([&] { Weights{folder.file("none.safetensors")}; }) ==
        "cannot read '" + folder.file("none.safetensors") + "': No such file or directory");
  fs::create_directories(folder.path / "empty");
  CHECK(user_error([&] { Weights{folder.file("empty")}; }) ==
        "there are no weights in '" + folder.file("empty") +
            "'\n  hint: a file model.safetensors or model.safetensors.index.json");
}

TEST_CASE("a file that cannot be written is a device error", "[model][safetensors][error]") {
  CHECK_THROWS_WITH(write_safetensors("/no/such/folder/w.safetensors", {}),
                    "cannot write '/no/such/folder/w.safetensors': No such file or directory");
  CHECK(user_error([] { stored_name(DType::I4); }) == "safetensors has no type i4");
}
