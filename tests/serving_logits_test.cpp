// SPDX-License-Identifier: Apache-2.0
// Logits of servers on the host runtime, row by row: a pool of blocks, prompts in chunks, sequences that make room, and
// keys and values that are handed to another server change no number.
#include <catch2/catch.hpp>

#include <map>

#include "tests/serving_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr double kEqual = 1e-9;
constexpr int kMany = 64, kFew = 16;  // blocks: with few, sequences make room for each other

/// Each prompt begins with a token of its own.
std::vector<Request> requests(const Model& model) {
  Random random{29};
  const auto vocabulary = static_cast<std::uint64_t>(vocabulary_of(model));
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{23, 9}, {5, 14}, {31, 3}, {12, 11}, {9, 12}};
  std::vector<Request> all;
  for (const auto& [prompt, output] : sizes) {
    Request r{.id = static_cast<std::int64_t>(all.size()), .prompt = prompt, .output = output};
    r.tokens.push_back(static_cast<std::int32_t>(r.id));
    while (static_cast<std::int64_t>(r.tokens.size()) < prompt)
      r.tokens.push_back(static_cast<std::int32_t>(random.below(vocabulary)));
    all.push_back(std::move(r));
  }
  return all;
}

/// Logits behind the prompt and behind each token but the last, of a request alone.
std::vector<std::vector<double>> alone(const Model& model, const Request& r) {
  std::vector<std::vector<double>> logits;
  generate_alone(model, r,
                 [&](Executor& executor, const Plan& plan) { logits.push_back(read_port(executor, plan, "logits")); });
  return logits;
}

std::vector<double> row_of(const std::vector<double>& all, std::size_t row, std::int64_t columns) {
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(row) * columns;
  return {first, first + columns};
}

/// Rows of a server's step: whose they are follows from the first page, which the row at position 0 gives an owner.
class Rows {
 public:
  explicit Rows(const Step& step) {
    for (const PortValues& in : step.inputs) ports_[in.port] = in.indices;
  }
  std::size_t sequences() const { return at("lengths").size(); }
  bool is_used(std::size_t i) const { return at("starts")[i + 1] > at("starts")[i]; }
  std::int64_t length(std::size_t i) const { return at("lengths")[i]; }
  std::int64_t owner(std::size_t i, std::map<std::int32_t, std::int64_t>& owners) const {
    const auto first = static_cast<std::size_t>(at("starts")[i]);
    const std::int32_t page = at("pages")[i * at("pages").size() / sequences()];
    if (at("positions")[first] == 0) owners[page] = at("tokens")[first];
    return owners.at(page);
  }

 private:
  const std::vector<std::int32_t>& at(const std::string& port) const { return ports_.at(port); }
  std::map<std::string, std::vector<std::int32_t>> ports_;
};

}  // namespace

TEST_CASE("logits of a server are those of each request alone", "[serving]") {
  const auto [name, scheduler, mesh, device] =
      GENERATE(table<std::string, std::string, std::string, int>({{"llama-tiny", "sarathi", "", kMany},
                                                                  {"deepseek-tiny", "sarathi", "", kMany},
                                                                  {"qwen3-moe-tiny", "vllm_v1", "", kMany},
                                                                  {"llama4-tiny", "vllm_v1", "", kMany},
                                                                  {"gemma2-tiny", "vllm_v1", "tp2", kMany},
                                                                  {"gemma3-tiny", "sarathi", "", kMany},
                                                                  {"granite-tiny", "vllm_v1", "", kMany},
                                                                  {"llama-tiny", "vllm_v1", "tp2", kMany},
                                                                  {"llama-tiny", "vllm_v0", "", kFew}}));
  INFO(name << " " << scheduler << " " << mesh << " " << device);
  const Model model = load_model(shipped_model(name));
  const std::vector<Request> all = requests(model);
  std::vector<std::vector<std::vector<double>>> expected;
  for (const Request& r : all) expected.push_back(alone(model, r));

  ServeOptions o = serve_options(scheduler);
  if (device == kFew) o.replica.max_tokens = 40;
  const KvBlocks::Sizes blocks{.device = device, .host = 0, .tokens = 4};
  std::int64_t preemptions = 0;
  auto program =
      serving_program(serving_plans(model, *strategy_of_mesh(mesh), o, blocks, kServedContext, &host_workspaces()), o,
                      blocks, all, [&](const Sequence& s) { preemptions += s.preemptions; });
  const auto executor = executor_of(program->plans(), model);
  std::map<std::int32_t, std::int64_t> owners;
  std::int64_t compared = 0, emitted = 0;
  while (auto step = program->next()) {
    const Plan& plan = program->plans()[step->plan];
    put(*executor, plan, step->inputs);
    executor->execute(plan, step->bindings);
    const Rows rows{*step};
    const std::vector<double> logits = read_port(*executor, plan, "logits");
    for (std::size_t i = 0; i < rows.sequences(); ++i) {
      if (!rows.is_used(i)) continue;
      const std::int64_t id = rows.owner(i, owners), length = rows.length(i);
      const std::int64_t behind = length - all[static_cast<std::size_t>(id)].prompt;
      if (behind < 0) continue;  // a chunk
      INFO("request " << id << " behind " << length << " tokens");
      CHECK(largest_difference(row_of(logits, i, output_size(plan)),
                               expected[static_cast<std::size_t>(id)][static_cast<std::size_t>(behind)]) <= kEqual);
      ++compared;
    }
    program->told({{{"next_tokens", read_port(*executor, plan, "next_tokens")}}, 1e-3});
  }
  for (const Request& r : all) emitted += r.output;
  CHECK(compared == emitted);
  CHECK((preemptions > 0) == (device == kFew));
}

namespace {

/// One sequence on a server of its own, step by step.
class OneSequence {
 public:
  OneSequence(const Model& model, const Strategy& strategy, std::int64_t device, std::vector<std::int32_t> pages)
      : plans_{serving_plans(model, strategy, serve_options("vllm_v1"),
                             {.device = device, .host = kHost, .tokens = kPage}, kServedContext, &host_workspaces())},
        pages_{std::move(pages)} {
    all_.push_back(std::move(plans_.mixed));
    all_.push_back(std::move(plans_.swap_out));
    all_.push_back(std::move(plans_.swap_in));
    executor_ = executor_of(all_, model);
  }

  /// Logits behind the last of these tokens, the first of which stands at `position`.
  std::vector<double> step(const std::vector<std::int32_t>& tokens, std::int64_t position) {
    const Plan& plan = all_[0];
    const auto rows = static_cast<std::size_t>(plans_.step.rows), n = tokens.size(),
               sequences = static_cast<std::size_t>(plans_.step.sequences);
    std::vector<std::int32_t> padded = tokens, positions(rows, 0), slots(rows, -1), lengths(sequences, 0),
                              last(sequences, 0), starts(sequences + 1, static_cast<std::int32_t>(n)),
                              table(sequences * static_cast<std::size_t>(plans_.step.max_pages), 0);
    padded.resize(rows, 0);
    for (std::size_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::int32_t>(position) + static_cast<std::int32_t>(i);
      positions[i] = at;
      slots[i] = pages_[static_cast<std::size_t>(at / kPage)] * kPage + at % kPage;
    }
    std::copy(pages_.begin(), pages_.end(), table.begin());
    starts[0] = 0;
    lengths[0] = static_cast<std::int32_t>(position) + static_cast<std::int32_t>(n);
    last[0] = static_cast<std::int32_t>(n) - 1;
    put(*executor_, plan,
        {{"tokens", padded, {}},
         {"positions", positions, {}},
         {"slots", slots, {}},
         {"pages", table, {}},
         {"starts", starts, {}},
         {"lengths", lengths, {}},
         {"last", last, {}}});
    BatchShape shape;
    shape.add(position, static_cast<std::int64_t>(n), n == 1);
    executor_->execute(plan, shape.bindings());
    return row_of(read_port(*executor_, plan, "logits"), 0, output_size(plan));
  }

  /// The block behind `pages()[i]` goes to block i of the host's memory, or comes from there.
  void move(std::size_t i, bool out) {
    std::vector<std::int32_t> device, host;
    for (std::int32_t slot = 0; slot < kPage; ++slot) {
      device.push_back(pages_[i] * kPage + slot);
      host.push_back(static_cast<std::int32_t>(i) * kPage + slot);
    }
    const Plan& plan = all_[out ? 1 : 2];
    put(*executor_, plan, {{"from", out ? device : host, {}}, {"to", out ? host : device, {}}});
    executor_->execute(plan, {});
  }

  /// Copies the host's memory of another server, which has as many ranks.
  void take_from(const OneSequence& other) {
    const Plan &from = other.all_[1], &to = all_[2];
    std::size_t copied = 0;
    for (std::size_t a = 0; a < from.tensors.size(); ++a)
      for (std::size_t b = 0; b < to.tensors.size(); ++b) {
        const Tensor &x = from.tensors[a], &y = to.tensors[b];
        if (x.tier != Tier::Host || y.tier != Tier::Host || from.names[x.name] != to.names[y.name]) continue;
        for (std::int64_t r = 0; r < from.mesh.size(); ++r) {
          const RankId rank{static_cast<std::size_t>(r)};
          executor_->write(to, TensorId{b}, rank, other.executor_->read(from, TensorId{a}, rank));
        }
        ++copied;
      }
    REQUIRE(copied > 0);
  }

  std::size_t num_pages() const { return pages_.size(); }

  static constexpr std::int32_t kPage = 4;
  static constexpr std::int64_t kHost = 8;

 private:
  ServingPlans plans_;
  std::vector<std::int32_t> pages_;
  std::vector<Plan> all_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace

TEST_CASE("keys and values that one server hands to another give the logits of one server", "[serving]") {
  const auto [name, mesh] =
      GENERATE(table<std::string, std::string>({{"llama-tiny", ""}, {"llama-tiny", "tp2"}, {"deepseek-tiny", ""}}));
  INFO(name << " " << mesh);
  const Model model = load_model(shipped_model(name));
  const Request r = [&] {
    Request one = requests(model)[3];
    one.output = 6;
    return one;
  }();
  const auto expected = alone(model, r);
  const auto strategy = strategy_of_mesh(mesh);
  OneSequence reads{model, *strategy, 16, {5, 2, 11, 7, 3}}, decodes{model, *strategy, 24, {20, 0, 9, 13, 1}};
  const auto likeliest = [](const std::vector<double>& logits) {
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  };
  std::vector<double> logits = reads.step(r.tokens, 0);
  CHECK(largest_difference(logits, expected[0]) <= kEqual);
  std::int32_t next = likeliest(logits);
  // Without the copy the other server knows nothing of the prompt.
  CHECK(largest_difference(decodes.step({next}, r.prompt), expected[1]) > 1e-3);
  for (std::size_t i = 0; i < reads.num_pages(); ++i) reads.move(i, true);
  decodes.take_from(reads);
  for (std::size_t i = 0; i < decodes.num_pages(); ++i) decodes.move(i, false);
  for (std::int64_t token = 1; token < r.output; ++token) {
    INFO("token " << token);
    logits = decodes.step({next}, r.prompt + token - 1);
    CHECK(largest_difference(logits, expected[static_cast<std::size_t>(token)]) <= kEqual);
    next = likeliest(logits);
  }
}
