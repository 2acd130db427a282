// SPDX-License-Identifier: Apache-2.0
#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "sim/program/program.hpp"

namespace orrery {
namespace {

class Seeded final : public OutcomeSource {
 public:
  explicit Seeded(std::uint64_t seed) : random_{seed} {}

  Outcome outcome(const Plan& plan, const Step& step) override {
    Outcome out;
    for (const std::string& port : step.outputs) {
      const TensorId t = plan.find_port(port);
      auto& values = out.values[port];
      values.resize(static_cast<std::size_t>(plan.shape(t).elements()));
      if (plan.tensors[t.index()].dtype != DType::I32) continue;
      const std::int64_t vocabulary = plan.has_port("logits") ? plan.shape(plan.find_port("logits"))[1] : 1;
      for (double& v : values) v = double(random_.below(static_cast<std::uint64_t>(vocabulary)));
    }
    return out;
  }

 private:
  Random random_;
};

class Recorded final : public OutcomeSource {
 public:
  explicit Recorded(std::vector<Outcome> outcomes) : outcomes_{std::move(outcomes)} {
    if (outcomes_.empty()) throw UserError{"a recorded run holds no outcomes"};
  }

  Outcome outcome(const Plan&, const Step&) override {
    if (next_ < outcomes_.size()) return outcomes_[next_++];
    return outcomes_.back();
  }

 private:
  std::vector<Outcome> outcomes_;
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<OutcomeSource> seeded_outcomes(std::uint64_t seed) { return std::make_unique<Seeded>(seed); }
std::unique_ptr<OutcomeSource> recorded_outcomes(std::vector<Outcome> outcomes) {
  return std::make_unique<Recorded>(std::move(outcomes));
}

}  // namespace orrery
