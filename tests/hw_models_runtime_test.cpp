// SPDX-License-Identifier: Apache-2.0
// Laws of the runtime's own kernels on a GPU: fits that find what measurements were made of, and what a model says by
// them.
#include <catch2/catch.hpp>

#include "calibrate/fit_runtime.hpp"
#include "hw_models/cluster_cost_model.hpp"
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

constexpr char kHostLaw[] = "host_adamw.master.bf16.bf16.f32";

Work adamw(std::int64_t elements, bool on_host) {
  return AdamW{.elements = elements, .master = true, .dtype = DType::BF16, .gradient = DType::BF16, .on_host = on_host};
}

/// Of the host: 60 us, 100 us per MB of what its first thread takes, 10 us per MB of the rest. The device is quick.
double made_up_update(std::int64_t elements, bool on_host) {
  const Amount a = amount(adamw(elements, on_host));
  const double mb = (a.read + a.written).base() * 1e-6, first = mb * std::min(1.0, double(1 << 19) / double(elements));
  return on_host ? 60e-6 + 100e-6 * first + 10e-6 * (mb - first) : 3e-6 + 0.5e-6 * mb;
}

/// A node of it whose cores were measured, or were not.
ClusterCostModel node_with_updates(bool measured) {
  std::vector<RuntimeCase> cases;
  for (std::uint32_t plan = 0; plan < 12; ++plan)
    for (const bool on_host : {true, false}) {
      if (on_host && !measured) continue;
      for (const std::int64_t elements : {1000, 300000, 5000000})
        cases.push_back(
            {adamw(elements << (plan % 4), on_host), {}, made_up_update(elements << (plan % 4), on_host), plan, true});
    }
  GpuParameters p = testing::bare_gpu();
  p.runtime = GpuRuntime{.behind = Seconds{1e-6}};
  fit_runtime(*p.runtime, p, cases);
  CHECK(p.runtime->kernels.contains(kHostLaw) == measured);
  using namespace literals;
  Cluster c;
  c.device = c.name = "gpu", c.host_link = Link{"up", 63.0_GBps, 1.0_us, {}};
  c.host.cores = 16, c.host.memory_bandwidth = 100.0_GBps;
  ClusterCostModel cost{c, std::make_unique<GpuModel>("gpu", p)};
  cost.choose_kernels({.runtime = true});
  return cost;
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
  CHECK(model.extrapolation(norm(5000, 2048), {}, own_kernels()).empty());
  CHECK(model.extrapolation(norm(5000, 2048, DType::F16), {}, own_kernels()) ==
        "norm on gpu: no law of its own, by the runtime's law norm");
  CHECK(other.deviation > 5 * own.deviation);
}

TEST_CASE("only where the runtime is asked for do its laws count", "[hw_models]") {
  GpuParameters p = measured_gpu();
  p.laws["norm"] = memory_law();
  const GpuModel model{"gpu", p};
  const Work w = norm(4096, 4096);
  CHECK(model.cost(w, {}, {}).duration != model.cost(w, {}, own_kernels()).duration);
  CHECK_THAT(model.extrapolation(w, {}, {}), Catch::StartsWith("norm on gpu: unfitted"));
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

TEST_CASE("updates by the cores of a node have laws of their own, beside those of the device", "[hw_models]") {
  const ClusterCostModel measured = node_with_updates(true), unmeasured = node_with_updates(false);
  const auto cost = [](const ClusterCostModel& m, const Work& w) { return m.cost(w, {}, RankId{0}); };
  for (const std::int64_t elements : {2000, 700000, 30000000}) {
    INFO(elements);
    CHECK(cost(measured, adamw(elements, true)).duration.base() ==
          Approx(made_up_update(elements, true)).epsilon(0.02));
    CHECK(cost(measured, adamw(elements, false)).duration.base() ==
          Approx(made_up_update(elements, false) + 1e-6).epsilon(0.02));
  }
  const OpCost own = cost(measured, adamw(30000000, true)), other = cost(unmeasured, adamw(30000000, true));
  CHECK((own.calibrated && !other.calibrated));
  CHECK(measured.extrapolation(adamw(30000000, true), {}, RankId{0}).empty());
  CHECK_THAT(unmeasured.extrapolation(adamw(30000000, true), {}, RankId{0}), Catch::Contains("on gpu: unfitted"));
  for (const OpCost& c : {own, other}) {
    double cores = 0;
    for (const Demand& d : c.used()) {
      CHECK((d.resource == Resource::CpuCores || d.resource == Resource::DramBandwidth));
      if (d.resource == Resource::CpuCores) cores = d.share;
    }
    CHECK(cores == 16);
  }
  // Nobody measured it: 0.42 GFLOP and 840 MB at 1 GFLOP/s and 1 GB/s on each of 16 threads.
  CHECK(other.duration.base() == Approx((0.42 + 0.84) / 16));
  ClusterCostModel quick = node_with_updates(true);
  quick.scale_parameter("host.rate", 2);
  CHECK(cost(quick, adamw(30000000, true)).duration.base() == Approx(own.duration.base() / 2));
  // Another program than our runtime has other updates.
  quick.reset_parameters();
  CHECK(cost(quick, adamw(30000000, true)).duration == other.duration);
}

TEST_CASE("copies between tiers have no law of a kernel", "[hw_models]") {
  const Bytes size{1e6};
  CHECK(kernel_law_name(Copy{size}) == "copy.device.device");
  for (const auto& [from, to] : {std::pair{Tier::Device, Tier::Pinned}, {Tier::Pinned, Tier::Device}})
    CHECK(kernel_law_names(Copy{size, from, to}).empty());
}
