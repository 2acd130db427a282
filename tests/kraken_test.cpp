// SPDX-License-Identifier: Apache-2.0
// Kraken (arXiv 2408.07802): plans against a straight-line implementation of the architecture, on one device and on as
// many ranks as there are sub-layers; training; how many parameters and how large caches are.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <cmath>
#include <map>
#include <vector>

#include "tests/network_testing.hpp"
#include "tests/parallel_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr std::int64_t kLayers = 3, kWays = 4, kHeads = 8, kWidth = 12, kInner = 24, kVocabulary = 29;

Model kraken(std::int64_t ways = kWays) {
  return model_from_config(
      parse_json(fmt::format(R"({{"model_type": "kraken", "n_ways": {}, "n_embd": {}, "n_layer": {}, "n_head": {},
                                 "n_positions": 24, "vocab_size": {}}})",
                             ways, kWidth, kLayers, kHeads, kVocabulary),
                 "kraken"),
      "kraken");
}

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

/// The architecture, word by word, over one sequence. No plan, no op, no code of ours but the weights' names.
class StraightLine {
 public:
  explicit StraightLine(std::map<std::string, Vector> weights) : w_{std::move(weights)} {}

  /// Logits of all tokens.
  Matrix run(const std::vector<std::int32_t>& tokens) const {
    const std::size_t n = tokens.size();
    Matrix embedded(n, Vector(kWidth));
    for (std::size_t t = 0; t < n; ++t)
      for (std::int64_t d = 0; d < kWidth; ++d)
        embedded[t][std::size_t(d)] = at("transformer.wte.weight", tokens[t] * kWidth + d) +
                                      at("transformer.wpe.weight", std::int64_t(t) * kWidth + d);
    std::vector<Matrix> x(kWays, embedded);
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      std::vector<Matrix> out(kWays);
      for (std::int64_t i = 0; i < kWays; ++i) out[std::size_t(i)] = sub_layer(layer, i, x);
      x = out;
    }
    Matrix logits(n, Vector(kVocabulary, 0.0));
    for (std::size_t t = 0; t < n; ++t) {
      Vector merged(kWidth, 0.0);
      for (std::int64_t i = 0; i < kWays; ++i)  // the concatenation of all outputs times a matrix
        for (std::int64_t a = 0; a < kWidth; ++a)
          for (std::int64_t d = 0; d < kWidth; ++d)
            merged[std::size_t(d)] +=
                x[std::size_t(i)][t][std::size_t(a)] * at("transformer.merge.weight", (i * kWidth + a) * kWidth + d);
      const Vector h = norm("transformer.ln_f", 0, merged);
      for (std::int64_t v = 0; v < kVocabulary; ++v)
        for (std::int64_t d = 0; d < kWidth; ++d)
          logits[t][std::size_t(v)] += h[std::size_t(d)] * at("transformer.wte.weight", v * kWidth + d);
    }
    return logits;
  }

 private:
  double at(const std::string& name, std::int64_t i) const { return w_.at(name)[std::size_t(i)]; }

  Matrix sub_layer(std::int64_t layer, std::int64_t i, const std::vector<Matrix>& x) const {
    const std::string name = fmt::format("transformer.h.{}.", layer);
    const Matrix a = attention(name, i, x[std::size_t(i)]);
    Matrix out;
    for (std::size_t t = 0; t < a.size(); ++t) {
      Vector u = x[std::size_t(i)][t];
      for (std::size_t d = 0; d < u.size(); ++d) u[d] += a[t][d];
      Vector v = u;
      for (std::int64_t j = 0; layer > 0 && j < kWays; ++j)
        for (std::size_t d = 0; j != i && d < v.size(); ++d) v[d] += x[std::size_t(j)][t][d];
      Vector inner = linear(name + "mlp.c_fc", i, norm(name + "ln_2", i, v), kInner);
      for (double& y : inner) y = y / 2 * (1 + std::erf(y / std::sqrt(2.0)));
      const Vector m = linear(name + "mlp.c_proj", i, inner, kWidth);
      for (std::size_t d = 0; d < u.size(); ++d) u[d] += m[d];
      out.push_back(u);
    }
    return out;
  }

  Matrix attention(const std::string& name, std::int64_t way, const Matrix& x) const {
    constexpr std::int64_t kOwn = kHeads / kWays, kDim = kWidth / kOwn;
    Matrix qkv, out;
    for (const Vector& row : x)
      qkv.push_back(linear(name + "attn.c_attn", way, norm(name + "ln_1", way, row), 3 * kWidth));
    for (std::size_t t = 0; t < x.size(); ++t) {
      Vector mixed(kWidth, 0.0);
      for (std::int64_t h = 0; h < kOwn; ++h) {
        Vector weight;
        double sum = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          double score = 0;
          for (std::int64_t d = 0; d < kDim; ++d)
            score += qkv[t][std::size_t(h * kDim + d)] * qkv[s][std::size_t(kWidth + h * kDim + d)];
          weight.push_back(std::exp(score / std::sqrt(double(kDim))));
          sum += weight.back();
        }
        for (std::size_t s = 0; s <= t; ++s)
          for (std::int64_t d = 0; d < kDim; ++d)
            mixed[std::size_t(h * kDim + d)] += weight[s] / sum * qkv[s][std::size_t(2 * kWidth + h * kDim + d)];
      }
      out.push_back(linear(name + "attn.c_proj", way, mixed, kWidth));
    }
    return out;
  }

  Vector linear(const std::string& name, std::int64_t way, const Vector& x, std::int64_t out) const {
    const auto in = std::int64_t(x.size());
    Vector y;
    for (std::int64_t o = 0; o < out; ++o) {
      double sum = at(name + ".bias", way * out + o);
      for (std::int64_t a = 0; a < in; ++a) sum += at(name + ".weight", (way * out + o) * in + a) * x[std::size_t(a)];
      y.push_back(sum);
    }
    return y;
  }

  Vector norm(const std::string& name, std::int64_t way, const Vector& x) const {
    double mean = 0, square = 0;
    for (const double v : x) mean += v / double(x.size());
    for (const double v : x) square += (v - mean) * (v - mean) / double(x.size());
    Vector y;
    for (std::size_t d = 0; d < x.size(); ++d) {
      const std::int64_t at_way = way * std::int64_t(x.size()) + std::int64_t(d);
      y.push_back((x[d] - mean) / std::sqrt(square + 1e-5) * at(name + ".weight", at_way) + at(name + ".bias", at_way));
    }
    return y;
  }

  std::map<std::string, Vector> w_;
};

std::map<std::string, Vector> random_weights(const Model& model) {
  std::map<std::string, Vector> out;
  Random random{23};
  for (const Parameter& p : model.parameters) {
    Vector& v = out[p.name];
    for (std::int64_t i = 0; i < p.elements(); ++i) v.push_back((p.init == Init::Ones ? 1 : 0) + 0.3 * random.normal());
  }
  return out;
}

void write(Executor& executor, const Plan& plan, const Model& model, const std::map<std::string, Vector>& weights) {
  write_constants(executor, plan);
  for (std::size_t i = 0; i < model.parameters.size(); ++i)
    write_parameter(executor, plan, ParameterId{i}, weights.at(model.parameters[i].name));
}

InferOptions short_pass() {
  InferOptions o;
  o.sequence = 8;
  return o;
}

std::unique_ptr<Strategy> on(const std::string& mesh) {
  return mesh.empty() ? single() : parallel(fmt::format("{{mesh: {}}}", mesh));
}

}  // namespace

TEST_CASE("a plan of Kraken is its architecture, on one rank and with sub-layers on ranks of their own", "[kraken]") {
  const std::string mesh = GENERATE("", "tp2", "tp4", "dp2 tp2");
  const Model model = kraken();
  const auto weights = random_weights(model);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 14; ++i) tokens.push_back(i * 5 % kVocabulary);
  InferOptions o;
  o.batch = 2;
  o.sequence = 7;
  o.dtype = Precision::F64;
  const Plan plan = on(mesh)->inference(model, o, &host_workspaces());
  auto executor = make_host_executor();
  executor->prepare(plan);
  write(*executor, plan, model, weights);
  put(*executor, plan, {{"tokens", tokens, {}}});
  executor->execute(plan, {});
  const auto logits = read_port(*executor, plan, "logits");
  REQUIRE(logits.size() == 14 * kVocabulary);
  const StraightLine reference{weights};
  for (std::size_t b = 0; b < 2; ++b) {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(7 * b);
    const Matrix expected = reference.run({first, first + 7});
    std::vector<double> rows;
    for (const auto& row : expected) rows.insert(rows.end(), row.begin(), row.end());
    const auto at = logits.begin() + static_cast<std::ptrdiff_t>(b * 7 * kVocabulary);
    INFO("mesh " << mesh << ", sequence " << b);
    CHECK(largest_difference({at, at + 7 * kVocabulary}, rows) <= 1e-9);
  }
}

TEST_CASE("Kraken decodes with a cache what whole passes give", "[kraken]") {
  const std::string mesh = GENERATE("", "tp4");
  const Model model = kraken();
  const auto weights = random_weights(model);
  GenerateOptions o;
  o.batch = 1;
  o.prompt = 5;
  o.tokens = 4;
  o.dtype = Precision::F64;
  const std::vector<std::int32_t> prompt{3, 1, 4, 1, 5};
  auto program = generation_program(model, o, on(mesh)->generation(model, o, &host_workspaces()), prompt);
  auto executor = make_host_executor();
  for (const Plan& plan : program->plans()) {
    executor->prepare(plan);
    write(*executor, plan, model, weights);
  }
  std::vector<std::int32_t> tokens = prompt;
  const StraightLine reference{weights};
  while (auto step = program->next()) {
    const Plan& plan = program->plans()[step->plan];
    put(*executor, plan, step->inputs);
    executor->execute(plan, step->bindings);
    const auto logits = read_port(*executor, plan, "logits"), next = read_port(*executor, plan, "next_tokens");
    const Vector expected = reference.run(tokens).back();
    for (std::size_t v = 0; v < expected.size(); ++v)
      CHECK(logits[v] == Approx(expected[v]).epsilon(1e-9).margin(1e-9));
    tokens.push_back(static_cast<std::int32_t>(next[0]));
    program->told({{{"next_tokens", next}}});
  }
}

TEST_CASE("Kraken trains on ranks as on one device", "[kraken]") {
  const std::string mesh = GENERATE("tp4", "tp2", "dp2 tp2", "dp2");
  const Model model = kraken();
  TrainOptions o;
  o.batch = 4;
  o.microbatches = 2;
  o.sequence = 6;
  o.dtype = Precision::F64;
  o.steps = 2;
  INFO(mesh);
  CHECK(worst_difference(train(model, o, *on(mesh)), train(model, o, *single())) <= 1e-7);
}

TEST_CASE("the all-reduce of a layer runs beside its attention and before its feed-forward", "[kraken]") {
  const Model model = kraken();
  const Plan plan = on("tp4")->inference(model, short_pass(), nullptr);
  std::size_t sums = 0;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const std::string_view name = plan.name_of(plan.ops[i]);
    if (plan.ops[i].stream == Stream::Comm) ++sums;
    const bool waits = !plan.deps_of(plan.ops[i]).empty();
    if (name.ends_with("attention.core")) CHECK_FALSE(waits);
    if (name.ends_with("others")) CHECK(waits);
  }
  CHECK(sums == kLayers - 1);  // and outside of layers one for the embedding, one for the merge, one for the logits
}

TEST_CASE("the released sizes of Kraken have the parameters of GPT-2's", "[kraken]") {
  // layers · ways · (4d² + 2·2d² weights, 7d biases, 4d of norms) + (50257 + 1024)·d + ways·d² + 2d
  const auto [layers, heads, ways, width, millions] =
      GENERATE(table<int, int, int, int, double>({{12, 12, 2, 678, 124.2},
                                                  {12, 12, 4, 504, 124.7},
                                                  {12, 12, 6, 418, 123.5},
                                                  {24, 16, 2, 888, 350.4},
                                                  {24, 16, 4, 644, 353.9},
                                                  {24, 16, 4, 960, 761.8}}));
  const Model model = model_from_config(
      parse_json(fmt::format(R"({{"model_type": "kraken", "n_ways": {}, "n_embd": {}, "n_layer": {}, "n_head": {}}})",
                             ways, width, layers, heads),
                 "kraken"),
      "kraken");
  const double d = width;
  const double derived = layers * ways * (8 * d * d + 11 * d) + (50257 + 1024) * d + ways * d * d + 2 * d;
  CHECK(double(model.parameter_count()) == derived);
  CHECK(double(model.parameter_count()) == Approx(millions * 1e6).epsilon(0.005));
}

TEST_CASE("caches of Kraken grow by n·d/D against tensor parallelism", "[kraken]") {
  // Sub-layers 12 wide on 4 ranks against a network 16 wide on 4 ranks: per rank 12 numbers for a key, and 16/4.
  const auto cache = [](const Model& model) {
    GenerateOptions o;
    o.prompt = 8;
    o.tokens = 4;
    const Plan plan = on("tp4")->generation(model, o, nullptr).decode;
    double sum = 0;
    for (const Tensor& t : plan.tensors)
      if (t.role == TensorRole::KvCache && t.base.is_none())
        sum += double(plan.layouts[t.layout.index()].shape.elements());
    return sum;
  };
  const double ours = cache(kraken()) / kLayers, theirs = cache(small_model("gpt2")) / 8;
  CHECK(ours / theirs == Approx(kWays * double(kWidth) / 16));
}

TEST_CASE("what Kraken cannot be split by is refused", "[kraken]") {
  const Model model = kraken();
  CHECK_THAT(user_error([&] { on("pp3")->inference(model, short_pass(), nullptr); }),
             Catch::Matchers::Contains("split by its sub-layers"));
  CHECK_THAT(user_error([&] { on("tp8")->inference(model, short_pass(), nullptr); }),
             Catch::Matchers::Contains("tp 8 does not divide 4 sub-layers"));
  TrainOptions o;
  o.dropout = 0.1;
  CHECK_THAT(user_error([&] { single()->train_step(model, o, nullptr); }),
             Catch::Matchers::Contains("sub-layers side by side"));
}
