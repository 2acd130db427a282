// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/sweep_points.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "sim/app/wiring.hpp"
#include "sim/base/kept_files.hpp"

namespace orrery {
namespace {

using nlohmann::json;

/// Keys of scenarios whose values may name files.
const std::set<std::string_view>& keys_of_files() {
  static const std::set<std::string_view> keys{"model", "cluster", "weights", "tokenizer", "text", "trace"};
  return keys;
}

void make_files_absolute(Node& node) {
  for (auto& [key, value] : node.fields) {
    make_files_absolute(value);
    if (value.kind != Node::Kind::Scalar || !keys_of_files().contains(key)) continue;
    const std::string path = file_named_by(value);
    if (path.empty()) continue;
    value.scalar = std::filesystem::weakly_canonical(path).string();
    value.quoted = true;
  }
  for (Node& item : node.items) make_files_absolute(item);
}

class ScenarioComputer final : public PointComputer {
 public:
  ScenarioComputer(SweepPlan plan, AppContext& context)
      : plan_{std::move(plan)}, context_{context}, is_suited_{parameters_digest() == plan_.parameters} {}

  json compute(const json& message) override {
    if (!is_suited_)
      throw UnsuitedError{"parameters of hardware or software here are other ones than those of the sweep"};
    const KeptFiles::InUse reading{kept_};
    const SweepPoint point{message.at("scenario"), message.at("values").get<SweptValues>()};
    return predict_point(plan_, readable(point, message.at("id")), context_);
  }

 private:
  /// The sweep has read the point: what this computer cannot read, or reads otherwise, is not the point's fault.
  ResolvedPoint readable(const SweepPoint& point, const std::string& id) const {
    const Locations& locations = context_.wiring.locations();
    try {
      ResolvedPoint read = resolve(plan_, point, locations);
      if (point_id(plan_, read, locations) == id) return read;
    } catch (const UserError& e) {
      throw UnsuitedError{e.what()};
    }
    throw UnsuitedError{fmt::format("files or parameters here are other ones than those of the sweep: scenario {}",
                                    plan_.scenarios.at(point.scenario).name)};
  }

  SweepPlan plan_;
  AppContext& context_;
  KeptFiles kept_;
  bool is_suited_;
};

PreparedPoint prepared(const SweepPlan& plan, const SweepPoint& point, const Locations& locations) {
  PreparedPoint out;
  out.point = {{}, plan.scenarios.at(point.scenario).name, point.values};
  try {
    const ResolvedPoint read = resolve(plan, point, locations);
    out.point.id = point_id(plan, read, locations);
    out.task.work = expected_work(read.scenario);
  } catch (const UserError& e) {
    out.refusal = e.what();
    out.point.id = refused_id(plan, point);
  }
  out.task.id = out.point.id;
  out.task.scenario = out.point.scenario;
  out.task.message = {{"id", out.point.id}, {"scenario", point.scenario}, {"values", point.values}};
  return out;
}

}  // namespace

Node with_absolute_files(Node document) {
  make_files_absolute(document);
  return document;
}

std::vector<PreparedPoint> prepare(const SweepPlan& plan, const std::vector<SweepPoint>& points,
                                   const Locations& locations, const std::function<void(double)>& after) {
  KeptFiles kept;
  const KeptFiles::InUse reading{kept};
  std::vector<PreparedPoint> out;
  for (const SweepPoint& p : points) {
    after(double(out.size()) / double(points.size()));
    out.push_back(prepared(plan, p, locations));
  }
  return out;
}

PointComputerOf point_computers(AppContext& context) {
  return
      [&context](const json& plan) { return std::make_unique<ScenarioComputer>(SweepPlan::from_json(plan), context); };
}

bool is_in_part(const std::string& id, std::int64_t part, std::int64_t parts) {
  return std::stoull(id.substr(0, 12), nullptr, 16) % static_cast<std::uint64_t>(parts) ==
         static_cast<std::uint64_t>(part);
}

}  // namespace orrery
