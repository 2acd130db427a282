// SPDX-License-Identifier: Apache-2.0
// Strategies with names of their own: each computes what one device computes, and is what `parallel` makes of its
// options.
#include <catch2/catch.hpp>

#include <algorithm>

#include "tests/parallel_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

struct Case {
  const char *name, *options, *as_parallel, *model = "gpt2";
};

constexpr Case kCases[] = {
    {"ddp", "{mesh: dp2, bucket: 1000}", "{mesh: dp2, data: {bucket: 1000}}"},
    {"zero1", "{mesh: dp2, owners: true}", "{mesh: dp2, data: {kind: zero1, owners: true}}"},
    {"zero2", "{mesh: dp2 fsdp2}", "{mesh: dp2 fsdp2, data: {kind: zero2}}"},
    {"zero3", "{mesh: fsdp2, part: 900, prefetch: 2, reshard: false}",
     "{mesh: fsdp2, data: {kind: zero3, part: 900, prefetch: 2, reshard: false}}"},
    {"tensor", "{mesh: dp2 tp2, sequence_parallel: true}", "{mesh: dp2 tp2, sequence_parallel: true}"},
    {"optimus-2d", "{mesh: row2 col2, tensor_overlap: true}", "{mesh: row2 col2, tensor_overlap: true}"},
    {"tensor-2.5d", "{mesh: depth2 row2 col2}", "{mesh: depth2 row2 col2}"},
    {"tensor-3d", "{mesh: x2 y2 z2, keep_gathered: true}", "{mesh: x2 y2 z2, keep_gathered: true}"},
    {"ring-self-attention", "{mesh: cp2}", "{mesh: cp2, context: rsa}"},
    {"ring-attention", "{mesh: cp2, zigzag: false}", "{mesh: cp2, context: ring, zigzag: false}"},
    {"ulysses", "{mesh: cp2}", "{mesh: cp2, context: ulysses}"},
    {"expert", "{mesh: ep2, expert_buffer: 4}", "{mesh: ep2, expert_buffer: 4}", "mixtral"},
    {"flexmoe", "{mesh: ep2, expert_slots: 3}", "{mesh: ep2, expert_slots: 3}", "mixtral"},
    {"layerwise", "{mesh: pp2 dp2, kind: zero1, layers: [{blocks: 1-2, mesh: tp2, recompute: full}]}",
     "{mesh: pp2 dp2, data: {kind: zero1}, layers: [{blocks: 1-2, mesh: tp2, recompute: full}]}"},
    {"gpipe", "{mesh: pp2}", "{mesh: pp2, schedule: gpipe}"},
    {"1f1b", "{mesh: pp2, stage_layers: [3, 5]}", "{mesh: pp2, schedule: 1f1b, stage_layers: [3, 5]}"},
    {"interleaved", "{mesh: pp2, chunks: 4}", "{mesh: pp2, schedule: interleaved, chunks: 4}"},
    {"chimera", "{mesh: pp2}", "{mesh: pp2, schedule: chimera}"},
    {"zb-h1", "{mesh: pp2}", "{mesh: pp2, schedule: zb-h1}"},
    {"zb-v", "{mesh: pp2}", "{mesh: pp2, schedule: zb-v}"},
    {"dualpipe", "{mesh: pp2}", "{mesh: pp2, schedule: dualpipe}"},
};

std::unique_ptr<Strategy> make(const std::string& name, const std::string& options) {
  return find_strategy(name).make(parse_yaml(options, "strategy"));
}

TrainOptions options() {
  TrainOptions o;
  o.batch = 16;
  o.microbatches = 4;
  o.sequence = 16;
  o.steps = 2;
  o.dtype = Precision::F64;
  o.optimizer = {.rate = 0.01, .epsilon = 1e-3};
  return o;
}

}  // namespace

TEST_CASE("every strategy with a name of its own computes what one device computes", "[parallel]") {
  const Case c = GENERATE(from_range(std::begin(kCases), std::end(kCases)));
  INFO(c.name << " " << c.options);
  const Model model = small_model(c.model);
  CHECK(worst_difference(train(model, options(), *make(c.name, c.options)), train(model, options(), *single())) < 1e-9);
}

TEST_CASE("a strategy with a name of its own is what `parallel` makes of the same options", "[parallel]") {
  const Case c = GENERATE(from_range(std::begin(kCases), std::end(kCases)));
  INFO(c.name << " " << c.options);
  const Model model = small_model(c.model);
  const auto text = [&](const Strategy& s) { return print_text(s.train_step(model, options(), nullptr)); };
  CHECK(text(*make(c.name, c.options)) == text(*parallel(c.as_parallel)));
}

TEST_CASE("a strategy with a name of its own refuses axes of others, and a mesh that splits nothing", "[parallel]") {
  CHECK(user_error([] { make("zero3", "{mesh: fsdp2 tp2}"); }) ==
        "the strategy `zero3` has no axis `tp`\n  hint: its axes are `fsdp` and `dp`; `parallel` takes all");
  CHECK(user_error([] { make("gpipe", "{mesh: pp1 dp2}"); }) ==
        "the strategy `gpipe` needs at least 2 ranks on `pp`\n  hint: mesh is stages: `pp4`; `dp2 pp4` with replicas");
  CHECK_THAT(user_error([] { make("tensor", "{mesh: tp2, schedule: gpipe}"); }),
             Catch::Contains("unknown key 'schedule'") && Catch::Contains("mesh, sequence_parallel"));
  CHECK_THAT(user_error([] { make("1f1b", "{stage_layers: [1, 1]}"); }), Catch::Contains("missing key 'mesh'"));
}
