// SPDX-License-Identifier: Apache-2.0
// A report for programs: names of fields are promises.
#include <nlohmann/json.hpp>

#include "sim/app/report.hpp"

namespace orrery {
namespace {

using nlohmann::json;

json named(const std::vector<NamedSeconds>& rows) {
  json out = json::object();
  for (const NamedSeconds& r : rows) out[r.name] = r.seconds;
  return out;
}

json owners(const std::vector<MemoryReport::Owner>& rows) {
  json out = json::array();
  for (const MemoryReport::Owner& o : rows) out.push_back({{"name", o.name}, {"role", o.role}, {"bytes", o.bytes}});
  return out;
}

json memory_json(const MemoryReport& m) {
  json by_role = json::object();
  for (const MemoryReport::Owner& o : m.by_role) by_role[o.role] = o.bytes;
  return {{"bytes", m.bytes},
          {"arena_bytes", m.arena_bytes},
          {"capacity", m.capacity ? json(*m.capacity) : json()},
          {"together", m.together},
          {"sharers", m.sharers},
          {"fits", m.fits()},
          {"rank", m.rank},
          {"op", m.op},
          {"by_role", by_role},
          {"largest", owners(m.largest)}};
}

}  // namespace

json to_json(const Report& r) {
  json path = json::array();
  for (const NamedSeconds& row : r.critical_path) path.push_back({{"name", row.name}, {"seconds", row.seconds}});
  json out = {{"schema_version", kSchemaVersion},
              {"source", r.measured ? "measured" : "predicted"},
              {"scenario", r.scenario},
              {"scenario_id", r.id},
              {"workload", r.workload},
              {"plan", r.plan},
              {"machine", r.machine},
              {"parameters", r.parameters},
              {"step_time", {{"seconds", r.step}, {"low", r.low}, {"high", r.high}}},
              {"steps", r.steps},
              {"total_seconds", r.total},
              {"tokens_per_second", r.tokens_per_second},
              {"tokens_per_step", r.tokens_per_step},
              {"model_flops", r.model_flops},
              {"mfu", r.mfu},
              {"peak_memory", memory_json(r.memory)},
              {"by_class", named(r.by_class)},
              {"exposed_communication", r.exposed_communication},
              {"bubble", r.bubble},
              {"critical_path", path},
              {"ops", r.ops},
              {"ranks", r.ranks},
              {"rank_classes", r.rank_classes},
              {"wall_seconds", r.wall_seconds},
              {"calibrated", r.calibrated},
              {"stages", json::array()},
              {"extrapolated", json::array()},
              {"extrapolated_shares", json::array()}};
  if (r.padding) out["padding"] = *r.padding;
  for (const Extrapolation& e : r.extrapolated) {
    out["extrapolated"].push_back(e.reason);
    out["extrapolated_shares"].push_back(e.share);
  }
  for (const StageReport& s : r.stages) out["stages"].push_back({{"busy_seconds", s.busy}, {"peak_bytes", s.bytes}});
  for (const AxisSpread& a : r.spread)
    out["spread"][a.axis] = {{"ranks", a.ranks}, {"per_node", a.per_node}, {"nodes", a.nodes}};
  for (const TierReport& t : r.tiers)
    out["peak_memory"]["tiers"][std::string{name_of(t.tier)}] = {
        {"bytes", t.bytes}, {"capacity", t.capacity ? json(*t.capacity) : json()}, {"fits", t.fits()}};
  for (const TransferReport& t : r.transfers)
    out["transfers"].push_back(
        {{"from", name_of(t.from)}, {"to", name_of(t.to)}, {"moves", t.moves}, {"bytes", t.bytes}});
  if (r.prefill) out["prefill_seconds"] = *r.prefill;
  if (!r.measured) return out;
  out["loss"] = r.loss;
  out["device"] = r.device;
  if (r.speculation)
    out["speculation"] = {{"rounds", r.speculation->rounds},
                          {"tokens_per_round", r.speculation->tokens_per_round},
                          {"verified_per_round", r.speculation->verified_per_round},
                          {"drafting", r.speculation->drafting},
                          {"verifying", r.speculation->verifying},
                          {"accepted", r.speculation->accepted}};
  if (!r.tokens.empty()) out["tokens"] = r.tokens, out["text"] = r.text;
  return out;
}

}  // namespace orrery
