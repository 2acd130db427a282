// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/exchanges.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "calibrate/published/exchanges.hpp"
#include "calibrate/published/expert_exchanges.hpp"
#include "calibrate/statistics.hpp"
#include "hw_models/fabric_model.hpp"

namespace orrery {
namespace {

void set_interval(Observation& o, double seconds, double deviation) {
  o.predicted = seconds;
  o.low = seconds * std::exp(-kNinetyPercent * deviation);
  o.high = seconds * std::exp(kNinetyPercent * deviation);
}

/// What rings get inside of a node, where collectives leave it: far more than what leaves.
constexpr BytesPerSecond kExchangesInside{300e9};

class ExchangePredictor final : public RowPredictor {
 public:
  ExchangePredictor() {
    for (const std::string& name : fabric_names({fabrics_folder()}))
      fabrics_.emplace(name, FabricModel{find_fabric(name, {fabrics_folder()})});
  }

  RowResult predict(const CsvRow& row) const override {
    ExchangeRow read = read_exchange_row(row);
    if (auto* skip = std::get_if<Skip>(&read)) return std::move(*skip);
    const PublishedExchange& x = std::get<PublishedExchange>(read);
    const auto fabric = fabrics_.find(x.fabric);
    if (fabric == fabrics_.end()) return Skip{SkipReason::UnknownDevice, x.fabric};
    const ExchangeSample& s = x.sample;
    const ExchangeTime t = fabric->second.time({s.op, s.bytes, s.ranks, s.nodes, s.software}, {}, kExchangesInside);
    Observation o;
    o.measured = s.measured.base();
    set_interval(o, t.total().base(), t.deviation);
    o.gpu = x.gpu, o.source = s.software, o.key = x.key(), o.size = s.bytes.base();
    o.op = exchange_label(enum_name(s.op), s.bytes);
    return RowPrediction{{o}, {}};
  }

 private:
  std::map<std::string, FabricModel> fabrics_;
};

class ExpertExchangePredictor final : public RowPredictor {
 public:
  RowResult predict(const CsvRow& row) const override {
    ExpertExchangeRow read = read_expert_exchange_row(row);
    if (auto* skip = std::get_if<Skip>(&read)) return std::move(*skip);
    RowPrediction out;
    for (const PublishedExpertExchange& x : std::get<std::vector<PublishedExpertExchange>>(read)) {
      const ExpertExchangeLaw& law = model_.law(x.shape);
      Observation o;
      o.quantity = x.shape.direction == ExpertDirection::Dispatch ? "dispatch" : "combine";
      o.measured = x.measured.base();
      set_interval(o, law.time(x.shape).base(), law.deviation_at(x.shape));
      o.gpu = row["gpu"], o.op = row["mode"], o.source = "deepep";
      o.key = fmt::format("{} {} {} {} {} {}", row["mode"], row["hidden"], row["num_tokens"], row["topk"],
                          row["n_experts"], row["sms"]);
      o.size = x.shape.bytes().base();
      out.observations.push_back(std::move(o));
    }
    return out;
  }

 private:
  ExpertExchangeModel model_ = load_expert_exchange("deepep_h100", {exchanges_folder()});
};

}  // namespace

std::unique_ptr<RowPredictor> make_exchange_predictor(const Wiring&) { return std::make_unique<ExchangePredictor>(); }

std::unique_ptr<RowPredictor> make_expert_exchange_predictor(const Wiring&) {
  return std::make_unique<ExpertExchangePredictor>();
}

}  // namespace orrery
