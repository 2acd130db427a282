// SPDX-License-Identifier: Apache-2.0
// Windows of documents that are computed: each document as if it were alone, on any mesh.
#include <catch2/catch.hpp>

#include "tests/parallel_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr double kRate = 0.1;

/// Documents of 1 to 20 tokens in windows of 16: some are cut, some windows are padded.
TrainOptions packed_steps(std::int64_t batch, std::int64_t microbatches, std::int64_t steps) {
  TrainOptions o = double_steps(batch, microbatches, 16, steps);
  o.packing = PackingOptions{.lengths = {.kind = LengthKind::Uniform, .least = 1, .most = 20}, .steps = 2};
  return o;
}

/// One step whose weights are those before less kRate times the gradient.
TrainOptions plain_step(std::int64_t batch, std::int64_t microbatches) {
  TrainOptions o = packed_steps(batch, microbatches, 1);
  o.dropout = 0;
  o.optimizer = {.kind = OptimizerKind::Sgd, .rate = kRate, .momentum = 0, .decay = 0, .clip = 0};
  return o;
}

const std::vector<std::int32_t>& indices_of(const Step& step, std::string_view port) {
  for (const PortValues& v : step.inputs)
    if (v.port == port) return v.indices;
  throw std::out_of_range{std::string{port}};
}

struct Document {
  std::vector<std::int32_t> tokens, targets;
};

/// The documents of the first step that a plan is given, by the places of their first rows; padding learns nothing.
std::vector<Document> documents_of(const Model& model, const TrainOptions& o, Plan plan) {
  const auto step = training_program(model, o, std::move(plan), {})->next();
  const auto &tokens = indices_of(*step, "tokens"), &targets = indices_of(*step, "targets"),
             &first = indices_of(*step, "first_keys"), &positions = indices_of(*step, "positions");
  std::vector<Document> out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int32_t place = static_cast<std::int32_t>(i) % static_cast<std::int32_t>(o.sequence);
    if (first[i] == place) out.emplace_back();
    CHECK(positions[i] == place - first[i]);
    CHECK(std::ssize(out.back().tokens) == positions[i]);
    out.back().tokens.push_back(tokens[i]), out.back().targets.push_back(targets[i]);
  }
  std::erase_if(out, [](const Document& d) { return d.targets.front() == -100; });
  return out;
}

/// What a step on these documents comes to, each of them alone on one device, as parts of a batch of so many rows.
Trained each_alone(const Model& model, TrainOptions o, const std::vector<Document>& documents, double rows) {
  Trained sum{.losses = {0}, .gradients = {}, .weights = {}};
  sum.gradients.resize(model.parameters.size());
  o.packing.reset();
  o.batch = o.microbatches = 1;
  for (const Document& d : documents) {
    o.sequence = std::ssize(d.tokens) - 1;
    const Plan plan = single()->train_step(model, o, &host_workspaces());
    const auto executor = make_host_executor();
    executor->prepare(plan);
    fill(*executor, plan, model, 3, 0.02);
    const std::vector<std::int32_t> tokens{d.tokens.begin(), d.tokens.end() - 1},
        next{d.tokens.begin() + 1, d.tokens.end()};
    CHECK(std::equal(next.begin(), next.end(), d.targets.begin()));
    CHECK(d.targets.back() == -100);
    put(*executor, plan, {{"tokens", tokens, {}}, {"targets", next, {}}});
    const bool is_first = sum.weights.empty();
    if (is_first)
      for (std::size_t i = 0; i < model.parameters.size(); ++i)
        sum.weights.push_back(read_parameter(*executor, plan, ParameterId{i}, model.parameters[i].elements()));
    Bindings bindings;
    bindings[Symbol::Step] = 1;
    executor->execute(plan, bindings);
    const double part = double(o.sequence) / rows;
    sum.losses[0] += part * read_port(*executor, plan, "loss")[0];
    for (std::size_t i = 0; i < model.parameters.size(); ++i) {
      const auto g = read_gradient(*executor, plan, ParameterId{i}, model.parameters[i].elements());
      sum.gradients[i].resize(g.size(), 0.0);
      for (std::size_t k = 0; k < g.size(); ++k) {
        sum.gradients[i][k] += part * g[k];
        sum.weights[i][k] -= kRate * part * g[k];
      }
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("documents of a window are computed as if each were alone, on every mesh", "[packing]") {
  for (const char* family : {"gpt2", "llama"}) {
    const Model model = small_model(family);
    const TrainOptions o = plain_step(8, 2);
    const auto documents = documents_of(model, o, single()->train_step(model, o, nullptr));
    REQUIRE(documents.size() > 10);
    const Trained want = each_alone(model, o, documents, double(o.batch * o.sequence));
    CHECK(worst_difference(train(model, o, *single()), want) < 1e-9);
    for (const char* mesh :
         {"{mesh: dp2}", "{mesh: tp2}", "{mesh: pp2}", "{mesh: dp4, data: {kind: zero1}}",
          "{mesh: dp2 tp2, data: {kind: zero3}}", "{mesh: pp2 dp2 tp2}", "{mesh: fsdp2 dp2, data: {kind: zero2}}"}) {
      INFO(family << " " << mesh);
      CHECK(worst_difference(train(model, o, *parallel(mesh)), want) < 1e-9);
    }
    for (const Recompute r : {Recompute::Full, Recompute::Selective}) {
      TrainOptions again = o;
      again.recompute = r;
      CHECK(worst_difference(train(model, again, *parallel("{mesh: pp2 dp2}")), want) < 1e-9);
    }
    TrainOptions unmasked = o;
    unmasked.packing->mask = false;
    CHECK(train(model, unmasked, *single()).losses[0] != Approx(want.losses[0]).epsilon(1e-6));
  }
}

TEST_CASE("steps on windows of documents, with dropout, are the same on one device and on many", "[packing]") {
  for (const char* family : {"gpt2", "llama", "mixtral"}) {
    const Model model = small_model(family);
    const TrainOptions o = packed_steps(8, 4, 3);
    const Trained one = train(model, o, *single());
    std::vector<std::string> meshes{"{mesh: dp2 tp2, sequence_parallel: true}",
                                    "{mesh: pp2 dp2, schedule: interleaved}"};
    if (model.family == "gpt2") meshes = {"{mesh: pp2 dp2, schedule: interleaved}"};
    if (model.family == "mixtral") meshes = {"{mesh: ep2}"};
    for (const std::string& mesh : meshes) {
      INFO(family << " " << mesh);
      CHECK(worst_difference(train(model, o, *parallel(mesh)), one) < 1e-9);
    }
  }
}

TEST_CASE("without a mask windows are samples as others are, also where ranks have parts of them", "[packing]") {
  const Model model = small_model("llama");
  TrainOptions o = packed_steps(8, 2, 2);
  o.packing->mask = false;
  const Trained one = train(model, o, *single());
  for (const char* mesh : {"{mesh: dp2 cp2}", "{mesh: cp2 dp2, context: ulysses}", "{mesh: row2 col2}"}) {
    INFO(mesh);
    CHECK(worst_difference(train(model, o, *parallel(mesh)), one) < 1e-9);
  }
}

TEST_CASE("ranks get the windows that were balanced for them", "[packing]") {
  const Model model = small_model("llama");
  TrainOptions o = plain_step(8, 2);
  o.packing->balance = true, o.packing->padding = false;
  const auto strategy = parallel("{mesh: dp4}");
  const Plan plan = strategy->train_step(model, o, &host_workspaces());
  const PackedStep four{.window = 16, .ranks = 4, .per_rank = 2, .together = 2, .seed = 1};
  const PackedSamples samples = packed_samples(*o.packing, four);
  const auto step = training_program(model, o, plan, {})->next();
  const auto& first = indices_of(*step, "first_keys");
  double most = 0;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    double pairs = 0, want = 0;
    for (std::size_t m = 0; m < 2; ++m)  // of microbatch m the rank has the sample 4 m + rank
      for (std::size_t i = 0; i < 16; ++i) pairs += double(i) + 1 - double(first[(4 * m + rank) * 16 + i]);
    for (std::size_t j = 0; j < 2; ++j)
      for (const DocumentPart& p : samples.windows[rank * 2 + j]) want += 0.5 * double(p.length() * (p.length() + 1));
    CHECK(pairs == want);
    most = std::max(most, pairs);
  }
  CHECK(most > 0);
  const auto documents = documents_of(model, o, plan);
  const Trained want = each_alone(model, o, documents, 8 * 16);
  CHECK(worst_difference(train(model, o, plan), want) < 1e-9);
}

TEST_CASE("text that is packed is that of the file, and is learned", "[packing]") {
  const Model model = small_model("llama");
  TrainOptions o = packed_steps(4, 1, 2);
  std::vector<std::int32_t> text(61);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::int32_t>(i);
  const auto step = training_program(model, o, single()->train_step(model, o, nullptr), text)->next();
  const auto &tokens = indices_of(*step, "tokens"), &targets = indices_of(*step, "targets");
  int learned = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (targets[i] < 0) continue;
    CHECK(targets[i] == (tokens[i] + 1) % 61);
    ++learned;
  }
  CHECK(learned > 30);
}
