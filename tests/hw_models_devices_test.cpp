// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "hw_models/cluster_cost_model.hpp"
#include "hw_models/fabric_parameters.hpp"
#include "hw_models/gpu_model.hpp"
#include "hw_models/parameters.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::literals;

TEST_CASE("every shipped device reads", "[hw_models]") {
  const auto names = device_names({parameters_folder()});
  CHECK(names.size() >= 24);
  for (const std::string& name : names) {
    INFO(name);
    CHECK(find_device(name, {parameters_folder()})->name() == name);
  }
}

TEST_CASE("every shipped GPU has a law for all that it can do", "[hw_models]") {
  for (const std::string& name : device_names({parameters_folder()})) {
    const auto device = find_device(name, {parameters_folder()});
    const auto* gpu = dynamic_cast<const GpuModel*>(device.get());
    if (!gpu) continue;
    INFO(name);
    for (const auto& [type, rate] : gpu->parameters().peak) {
      INFO(type);
      for (int t = 0; t <= static_cast<int>(DType::Bool); ++t) {
        const auto dtype = static_cast<DType>(t);
        if (name_of(dtype) != type) continue;
        const Gemm g{.m = 1024, .n = 1024, .k = 1024, .dtype = dtype};
        const GroupedGemm e{.rows = 1024, .n = 1024, .k = 1024, .groups = 8, .dtype = dtype};
        for (const Work& w : {Work{g}, Work{e}}) {
          const double t_op = gpu->cost(w, {}, {}).duration.base();
          CHECK(t_op > 1e-7);
          CHECK(t_op < 1);
        }
      }
    }
    const DType any = gpu->parameters().peak.contains("bf16") ? DType::BF16 : DType::F32;
    for (const std::int64_t q : {1, 1024}) {
      const AttentionShape s{
          .batch = 4, .heads = 8, .kv_heads = 2, .q = q, .kv = 1024, .qk_dim = 64, .v_dim = 64, .dtype = any};
      CHECK(gpu->cost(AttentionForward{s}, {}, {}).duration.base() > 1e-7);
    }
    CHECK(gpu->cost(SoftmaxForward{.rows = 64, .cols = 64}, {}, {}).duration.base() > 1e-7);
    CHECK(gpu->cost(NormForward{.rows = 64, .dim = 64}, {}, {}).duration.base() > 1e-7);
  }
}

TEST_CASE("casts that are kept take no time of their own: the product pays them, kept or not", "[hw_models]") {
  const auto gpu = find_device("h100_sxm", {parameters_folder()});
  const auto seconds = [&](const Work& w) { return gpu->cost(w, {}, {}).duration.base(); };
  const auto check = [&](auto product) {
    const double before = seconds(product);
    for (const InputCast input : {InputCast::Written, InputCast::Read}) {
      product.input = input;
      CHECK(seconds(product) == before);
      CHECK(gpu->extrapolation(product, {}, {}).empty());
    }
  };
  const Gemm forward{.m = 4096, .n = 4096, .k = 4096, .narrow = Narrow::EightBits, .dtype = DType::BF16};
  Gemm gradient = forward;
  gradient.transpose_a = true;
  CHECK(seconds(gradient) < seconds(forward));  // whose operands were cast before
  check(gradient);
  Gemm other = forward;
  other.input = InputCast::Written;
  CHECK(seconds(other) == seconds(forward));
  other.input = InputCast::Read;  // the input was cast for another product, as of other columns of the same weight
  CHECK(seconds(other) == seconds(gradient));
  const GroupedGemm experts{
      .rows = 4096, .n = 2048, .k = 2048, .groups = 8, .narrow = Narrow::EightBits, .dtype = DType::BF16};
  const double before = seconds(experts);
  GroupedGemm written = experts;
  written.input = InputCast::Written;
  CHECK(seconds(written) == before);
}

TEST_CASE("an unknown device names the known ones", "[hw_models][error]") {
  CHECK_THAT(user_error([] { find_device("h100", {parameters_folder()}); }),
             Catch::StartsWith("unknown device 'h100'") && Catch::Contains("h100_sxm"));
}

TEST_CASE("a peak without its unit is refused", "[hw_models][error]") {
  CHECK_THAT(user_error([] { read_device(parse_yaml("gpu: {sm_count: 10, peak: {bf16: 989}}", "g.yaml"), "g"); }),
             Catch::Contains("g.yaml:1:34"));
}

TEST_CASE("messages between nodes use the card, inside of one the device's link", "[hw_models]") {
  const Cluster c = load_cluster(ORRERY_SOURCE_DIR "/scenarios/clusters/dgx_h100_x4.yaml");
  ClusterCostModel model{c, find_device(c.device, {parameters_folder()})};
  // At what messages reach of the links, a card being an eighth of its node's; and microseconds to start.
  const FabricParameters inside = find_fabric(c.device_link->fabric, {fabrics_folder()}),
                         between = find_fabric(c.nic->fabric, {fabrics_folder()});
  const double near = 450e6 / inside.bus.base(), far = 450e6 / (between.bus.base() / 8);
  CHECK(model.transfer(450.0_MB, RankId{0}, RankId{7}).duration.base() == Approx(near).epsilon(0.02));
  CHECK(model.transfer(450.0_MB, RankId{0}, RankId{8}).duration.base() == Approx(far).epsilon(0.02));
  CHECK(model.transfer(450.0_MB, RankId{0}, RankId{8}).demands[0].resource == Resource::Nic);
  model.scale_parameter("nic.bandwidth", 2);
  CHECK(model.transfer(450.0_MB, RankId{0}, RankId{8}).duration.base() == Approx(far / 2).epsilon(0.02));
  CHECK(model.launch(Fill{.elements = 1}, RankId{0}).runs_ahead);
}
