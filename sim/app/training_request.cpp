// SPDX-License-Identifier: Apache-2.0
#include "sim/app/training_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/app/scenario_flags.hpp"
#include "sim/app/wiring.hpp"
#include "sim/model/load.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kUsualSequence = 1024;

/// bf16, or f16 on devices that have no matrix arithmetic in bf16.
std::string usual_type(const DeviceModel& device) {
  try {
    device.peak(DType::BF16);
    return "bf16";
  } catch (const UserError&) {
    return "f16";
  }
}

/// The first tier that is too small, with how much it lacks; `reserved`: part of a device that stays free.
std::string limit_of(const Report& r, double reserved) {
  const auto too_small = [](std::string_view tier, double bytes, double capacity) {
    return capacity > 0 ? fmt::format("{} memory: {} of {}", tier, to_text(Bytes{bytes}), to_text(Bytes{capacity}))
                        : fmt::format("{} memory: there is none", tier);
  };
  if (const double room = (1 - reserved) * r.memory.capacity.value_or(INFINITY); double(r.memory.together) > room)
    return too_small("device", double(r.memory.together), room);
  for (const TierReport& t : r.tiers)
    if (t.capacity && double(t.bytes) > *t.capacity)
      return too_small(t.tier == Tier::Pinned ? "host" : name_of(t.tier), double(t.bytes), *t.capacity);
  return {};
}

std::string slowed_by(const Report& r) {
  std::vector<NamedSeconds> groups{{"compute", 0}, {"update", 0}, {"copies", 0}, {"communication", 0}, {"waiting", 0}};
  for (const NamedSeconds& c : r.by_class) {
    const std::size_t group = c.name == "optimizer"                                         ? 1
                              : c.name == "copy"                                            ? 2
                              : c.name == "collective" || c.name == "point_to_point"        ? 3
                              : c.name == "waiting" || c.name == "idle" || c.name == "host" ? 4
                                                                                            : 0;
    groups[group].seconds += c.seconds;
  }
  const auto most = std::max_element(groups.begin(), groups.end(),
                                     [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return r.step > 0 ? fmt::format("{} {:.0f} %", most->name, 100 * most->seconds / r.step) : std::string{};
}

}  // namespace

void use_devices(Node& document, const Cluster& cluster, std::int64_t devices) {
  if (cluster.is_heterogeneous())
    throw UserError{"a part of a cluster with nodes of several kinds is not one thing", "leave --devices out"};
  if (devices > cluster.num_ranks())
    throw UserError{fmt::format("--devices {} is more than the {} of {}", devices, cluster.num_ranks(), cluster.name)};
  const std::int64_t nodes = (devices + cluster.devices_per_node - 1) / cluster.devices_per_node;
  if (devices % nodes != 0)
    throw UserError{fmt::format("--devices {} are not as many on each of {} nodes", devices, nodes),
                    fmt::format("use a multiple of {}", cluster.devices_per_node)};
  set_path(document, fmt::format("nodes={}", nodes), {});
  set_path(document, fmt::format("devices_per_node={}", devices / nodes), {});
  if (devices / nodes != cluster.devices_per_node && cluster.layout != NodeLayout::Pcie)
    set_path(document, "layout=switch", {});  // a part of a cube mesh is none
}

std::vector<Flag> TrainingTarget::flags() {
  return {
      {"--cluster", "C", "file, or cluster as `orrery list clusters` names it; left out: this computer",
       [this](const std::string& v) { cluster_ = v; }},
      {"--devices", "N", "devices of it; left out: all",
       [this](const std::string& v) { devices_ = integer_option("--devices", v, 1); }},
      {"--sequence", "N", "tokens per sample; default 1024, or as many as the model has places for",
       [this](const std::string& v) { sequence_ = integer_option("--sequence", v, 1); }},
      {"--dtype", "TYPE", "of weights and activations: bf16, f16, f32; default bf16, f16 where there is none",
       [this](const std::string& v) {
         check_choice("--dtype", v, {"bf16", "f16", "f32"});
         dtype_ = v;
       }},
  };
}

TrainingRequest TrainingTarget::read(const Wiring& wiring, const std::string& model) {
  TrainingRequest q;
  model_ = model;
  const std::string model_path = config_file(wiring.locations().find_model(model));
  q.model = read_yaml(model_path);
  network_ = load_model(model_path);
  std::erase_if(q.model.fields, [](const auto& f) { return f.first == "_name_or_path"; });
  q.model.fields.emplace_back("_name_or_path", Node::of(network_.name));
  const auto* network = std::get_if<Transformer>(&network_.network);
  const std::int64_t places = network != nullptr && network->max_positions > 0 ? network->max_positions : INT64_MAX;
  q.sequence = sequence_.value_or(std::min(kUsualSequence, places));
  const std::string path = wiring.locations().find_cluster(cluster_);
  q.cluster = read_yaml(path);
  if (devices_) use_devices(q.cluster, load_cluster(path), *devices_);
  const Machine machine = wiring.machine(read_cluster(q.cluster, cluster_));
  const ClusterCostModel& cost = *machine.cost;
  devices_per_node_ = cost.cluster().devices_per_node;
  has_own_memory_ = cost.own_memory().has_value();
  q.ranks = has_own_memory_ || devices_ ? cost.cluster().num_ranks() : 1;
  q.room = {cost.capacity(Tier::Device).base(), cost.capacity(Tier::Pinned).base(), cost.capacity(Tier::Disk).base()};
  q.dtype = dtype_.empty() ? usual_type(cost.device()) : dtype_;
  return q;
}

std::string TrainingTarget::head(const TrainingRequest& q, const std::string& work) const {
  const auto room = [](double bytes) { return bytes > 0 ? to_text(Bytes{bytes}) : std::string{"none"}; };
  return fmt::format("{} ({:.3g} B parameters) on {}: {} device{}, {}, {}\nper device: memory {}{}, host {}, disk {}\n",
                     model_, double(network_.parameter_count()) * 1e-9, cluster_, q.ranks, q.ranks == 1 ? "" : "s",
                     work, q.dtype, room(q.room.device),
                     q.reserved > 0 ? fmt::format(" ({:.3g} % stay free)", 100 * q.reserved) : "", room(q.room.host),
                     room(q.room.disk));
}

TrainingRequest TrainingTarget::named(TrainingRequest q) const {
  if (const Node name = Node::of(model_); file_named_by(name).empty()) q.model = name;
  if (const Node name = Node::of(cluster_); !devices_ && file_named_by(name).empty()) q.cluster = name;
  return q;
}

nlohmann::json TrainingTarget::json(const TrainingRequest& q) const {
  return {{"schema_version", kSchemaVersion},
          {"model", model_},
          {"parameters", network_.parameter_count()},
          {"cluster", cluster_},
          {"devices", q.ranks},
          {"sequence", q.sequence},
          {"dtype", q.dtype},
          {"reserved", q.reserved}};
}

std::optional<double> TrainingTrial::device_bytes() const {
  for (const TierReport& tier : tiers)
    if (tier.tier == Tier::Device) return double(tier.bytes);
  return {};
}

std::string TrainingTrial::peak(Tier a, Tier b) const {
  std::int64_t most = 0;
  for (const TierReport& tier : tiers)
    if (tier.tier == a || tier.tier == b) most += tier.bytes;
  return most > 0 ? to_text(Bytes{double(most)}) : "-";
}

bool TrainingTrial::is_better_than(const TrainingTrial& other) const {
  if (fits() != other.fits()) return fits();
  constexpr double kNotPredicted = 1e300;
  return fits() ? step < other.step
                : device_bytes().value_or(kNotPredicted) < other.device_bytes().value_or(kNotPredicted);
}

std::string training_scenario(const TrainingRequest& q, const std::string& strategy, const std::string& recompute) {
  return fmt::format(
      "model: {}\ncluster: {}\nstrategy: [{{{}}}]\n"
      "workload: {{train: {{batch: {}{}, sequence: {}, dtype: {}, recompute: {}}}}}\n",
      to_flow_yaml(q.model), to_flow_yaml(q.cluster), strategy, q.batch,
      q.microbatches > 1 ? fmt::format(", microbatches: {}", q.microbatches) : "", q.sequence, q.dtype, recompute);
}

TrainingTrial predict_training(const Reproducer& reproducer, const TrainingRequest& request,
                               const std::string& strategy, const std::string& recompute, Report* report) {
  TrainingTrial t;
  t.recompute = recompute.substr(0, recompute.find(','));
  try {
    const Report r = reproducer.predict(training_scenario(request, strategy, recompute)).report;
    t.limit = limit_of(r, request.reserved), t.slowed = slowed_by(r), t.tiers = r.tiers;
    if (t.tiers.empty()) t.tiers.push_back({Tier::Device, r.memory.bytes, r.memory.capacity});
    t.step = r.step, t.low = r.low, t.high = r.high;
    t.tokens_per_second = r.tokens_per_second, t.mfu = r.mfu;
    if (report != nullptr) *report = r;
  } catch (const UserError& e) {
    t.limit = e.diagnostics().front().message;
  }
  return t;
}

nlohmann::json to_json(const TrainingTrial& t) {
  nlohmann::json tiers = nlohmann::json::object();
  for (const TierReport& tier : t.tiers)
    tiers[std::string{name_of(tier.tier)}] = {
        {"bytes", tier.bytes}, {"capacity", tier.capacity ? nlohmann::json(*tier.capacity) : nlohmann::json()}};
  return {{"recompute", t.recompute},
          {"fits", t.fits()},
          {"limit", t.limit},
          {"most_time", t.slowed},
          {"peak", tiers},
          {"step_time", {{"seconds", t.step}, {"low", t.low}, {"high", t.high}}},
          {"tokens_per_second", t.tokens_per_second},
          {"mfu", t.mfu}};
}

}  // namespace orrery
