// SPDX-License-Identifier: Apache-2.0
// Laws of the runtime's own kernels on a GPU: fits that find what measurements were made of, and what a model says by
// them.
#include <catch2/catch.hpp>

#include "calibrate/fit_runtime.hpp"
#include "hw_models/gpu_model.hpp"
#include "sim/base/yaml.hpp"
#include "tests/hw_models_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;

namespace {

constexpr char kNormLaw[] = "norm.rms.bf16.weighted";

Work norm(std::int64_t rows, std::int64_t dim, DType dtype = DType::BF16) {
  return NormForward{.kind = NormKind::Rms, .rows = rows, .dim = dim, .dtype = dtype};
}

/// 6 us, and 0.4 us per MB; 0.5 beyond 25 MB.
double made_up_seconds(const Work& w) {
  const Amount a = amount(w);
  const double mb = (a.read + a.written).base() * 1e-6;
  return 6e-6 + 0.4e-6 * std::min(mb, 25.0) + 0.5e-6 * std::max(0.0, mb - 25);
}

GpuParameters measured_gpu() {
  std::vector<RuntimeCase> cases;
  for (std::uint32_t plan = 0; plan < 12; ++plan)
    for (const std::int64_t dim : {512, 1024, 4096}) {
      const Work w = norm(std::int64_t{128} << (plan % 8), dim);
      cases.push_back({w, {}, made_up_seconds(w), plan, true});
    }
  GpuParameters p = testing::bare_gpu();
  p.provenance = {.machine = "a GPU", .date = "today", .tool = "a test", .source = "made up"};
  GpuRuntime runtime{
      .provenance = p.provenance, .enqueue = Seconds{8e-6}, .start_latency = Seconds{4e-6}, .behind = Seconds{1e-6}};
  fit_runtime(runtime, p, cases);
  p.runtime = runtime;
  return p;
}

Scales own_kernels() {
  Scales s;
  s.choose({.runtime = true});
  return s;
}

/// Of what memory limits, at the rate of the data sheet.
GpuLaw memory_law() {
  GpuLaw l;
  for (const LawParameter& p : stream_law().parameters) l.parameters[std::string{p.name}] = p.name == "memory";
  return l;
}

std::string written(const GpuParameters& p) { return to_yaml(write_options(p)); }

}  // namespace

TEST_CASE("a law of the runtime's kernels finds what the measurements were made of", "[hw_models]") {
  const GpuParameters p = measured_gpu();
  const KernelLaw& law = p.runtime->kernels.at(kNormLaw);
  CHECK(law.points == 36);
  CHECK(law.median_error < 1e-3);
  const GpuModel model{"gpu", p};
  const Work unseen = norm(5000, 2048);
  const OpCost c = model.cost(unseen, {}, own_kernels());
  CHECK(c.duration.base() == Approx(made_up_seconds(unseen) + 1e-6).epsilon(0.01));  // its stream then stands still
  CHECK(c.calibrated);
  CHECK((c.deviation >= 0 && c.bias > 0));  // no more of a law's doubt is shared than there is
  CHECK(model.launch(unseen, own_kernels()).behind.base() == Approx(1e-6));
  CHECK(model.launch(unseen, own_kernels()).enqueue.base() == Approx(8e-6));
}

TEST_CASE("a variant that was not measured is predicted by the law of its kind, and doubted", "[hw_models]") {
  const GpuModel model{"gpu", measured_gpu()};
  const OpCost other = model.cost(norm(5000, 2048, DType::F16), {}, own_kernels()),
               own = model.cost(norm(5000, 2048), {}, own_kernels());
  CHECK(other.duration == own.duration);
  CHECK(!other.calibrated);
  CHECK(other.deviation > 5 * own.deviation);
}

TEST_CASE("only where the runtime is asked for do its laws count", "[hw_models]") {
  GpuParameters p = measured_gpu();
  p.laws["norm"] = memory_law();
  const GpuModel model{"gpu", p};
  const Work w = norm(4096, 4096);
  CHECK(model.cost(w, {}, {}).duration != model.cost(w, {}, own_kernels()).duration);
  CHECK(model.launch(w, {}).behind == Seconds{0});
}

TEST_CASE("laws of the runtime are written and read again, and unknown features refused", "[hw_models]") {
  const GpuParameters p = measured_gpu();
  const GpuParameters again = read_gpu_parameters(parse_yaml(written(p), "gpu.yaml"));
  REQUIRE(again.runtime);
  CHECK(again.runtime->kernels.at(kNormLaw).seconds.at("call") ==
        Approx(p.runtime->kernels.at(kNormLaw).seconds.at("call")));
  GpuParameters wrong = p;
  wrong.runtime->kernels.at(kNormLaw).seconds["moons"] = 1;
  CHECK_THAT(user_error([&] { read_gpu_parameters(parse_yaml(written(wrong), "gpu.yaml")); }),
             Catch::Contains("unknown feature 'moons'"));
}
