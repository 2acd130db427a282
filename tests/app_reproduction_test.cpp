// SPDX-License-Identifier: Apache-2.0
// Published results beside ours: which claims hold is part of the results, so a change of it is seen.
#include "sim/app/reproduction.hpp"

#include <cmath>
#include <set>

#include "hw_models/software_profile.hpp"
#include "tests/app_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

struct Result {
  std::string name;
  std::size_t claims, holding, calibrated = 0;
};

const Result kResults[] = {
    {"ring-self-attention", 6, 4},
    {"optimus", 3, 2},
    {"memo", 3, 3},
    {"kraken", 4, 4},
    {"energonai", 9, 6},
    {"leviathan", 26, 24},
    {"medusa", 7, 7},
    {"eagle", 4, 2},
    {"clover", 7, 3, 4},
    {"glide-cape", 7, 5},
    {"elixir", 9, 7, 1},
    {"angel-ptm", 6, 4, 1},
    {"zero-offload", 6, 6},
    {"zero-infinity", 6, 6},
    {"patrickstar", 80, 67, 4},
};

}  // namespace

TEST_CASE("reproductions come to what their table says") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const Reproducer reproducer{wiring, [] {}};
  REQUIRE(reproductions().size() == std::size(kResults));
  for (const Result& r : kResults) {
    INFO(r.name);
    const Reproduction made = find_reproduction(r.name).make(reproducer);
    const std::vector<Claim>& claims = made.claims;
    CHECK(claims.size() == r.claims);
    std::size_t holding = 0, calibrated = 0;
    std::set<std::string> names;
    for (const Claim& c : claims) {
      INFO(c.name << " " << c.ours);
      CHECK(std::isfinite(c.ours));
      CHECK((c.ours > 0 && c.paper > 0 && c.within > 0));
      CHECK(names.insert(c.name).second);
      holding += c.holds();
      calibrated += c.calibrated;
      CHECK(!(c.calibrated && c.holds()));
    }
    CHECK(holding == r.holding);
    CHECK(calibrated == r.calibrated);
    CHECK(made.ablations.size() >= 4);
    for (const Ablation& a : made.ablations) CHECK(a.values.size() == made.quantities.size());
  }
}

TEST_CASE("the largest size that fits is found, and none where nothing fits") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const Reproducer reproducer{wiring, [] {}};
  const auto text = [](std::int64_t batch) {
    return "model: gpt2-tiny\ncluster: dgx_h100\nworkload: {train: {sequence: 256, batch: " + std::to_string(batch) +
           "}}\n";
  };
  const std::int64_t most = reproducer.largest_that_fits(text, 64, 1 << 20);
  CHECK(reproducer.predict(text(most)).report.memory.fits());
  CHECK_FALSE(reproducer.predict(text(most + 64)).report.memory.fits());
  CHECK(reproducer.largest_that_fits(text, 1 << 16, 1 << 20) == 0);
}

TEST_CASE("an unknown reproduction is refused with those there are") {
  CHECK(user_error([] { find_reproduction("optimos"); }) ==
        "unknown reproduction 'optimos'; did you mean 'optimus'? known reproductions: ring-self-attention, optimus, "
        "memo, kraken, energonai, leviathan, medusa, eagle, glide-cape, clover, elixir, angel-ptm, zero-offload, "
        "zero-infinity, patrickstar");
}

TEST_CASE("small models decode as fast as the host starts ops, unless it starts all of them at once") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const Reproducer reproducer{wiring, [] {}};
  const auto decode = [&](const std::string& model, const std::string& launch) {
    return reproducer
        .predict("model: " + model + "\ncluster: dgx_h100\nprofile: fsdp_2023\nlaunch: " + launch +
                 "\nworkload: {generate: {prompt: 128, tokens: 4, dtype: bf16}}\n")
        .report;
  };
  const double call = find_profile("fsdp_2023").launch * 4e-6;  // hw_models/params/h100_sxm.yaml
  const Report small = decode("gpt2", "eager");
  CHECK(small.step == Approx(double(small.ops) * call).epsilon(0.1));
  CHECK(decode("gpt2", "graph").step < 0.8 * small.step);
  const Report large = decode("llama-3-8b", "eager");  // a graph saves what the kernels hide anyway
  CHECK(large.step > 1.5 * double(large.ops) * call);
  CHECK(decode("llama-3-8b", "graph").step == Approx(large.step).epsilon(0.03));
}
