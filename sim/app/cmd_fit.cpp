// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/memory_ways.hpp"
#include "sim/app/parallel.hpp"
#include "sim/app/report.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/wiring.hpp"
#include "sim/base/table.hpp"
#include "sim/model/load.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kUsualSequence = 1024;

struct Search {
  FitGrowth growth;
  std::string what;
};

/// A file, or what a name stands for.
std::string file_of(const std::string& name, const Locations& locations,
                    std::string (Locations::*find)(const std::string&) const) {
  const std::string path = file_named_by(Node::of(name));
  if (path.empty()) return (locations.*find)(name);
  return std::filesystem::is_directory(path) ? path + "/config.json" : path;
}

/// So many devices of a cluster: nodes with fewer of them, or fewer nodes.
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

/// bf16, or f16 on devices that have no matrix arithmetic in bf16.
std::string usual_type(const DeviceModel& device) {
  try {
    device.peak(DType::BF16);
    return "bf16";
  } catch (const UserError&) {
    return "f16";
  }
}

class Fit final : public Command {
 public:
  std::string_view name() const override { return "fit"; }
  std::string_view summary() const override {
    return "which ways to keep a model's data in memory can train it on a cluster, and how fast";
  }
  std::string_view arguments() const override { return "MODEL"; }
  Arity arity() const override { return {1, 1}; }

  std::vector<Flag> flags() override {
    const auto search = [this](FitGrowth growth, const char* what) {
      return [this, growth, what](const std::string&) {
        if (search_) throw UserError{fmt::format("--max-{} and --max-{} exclude each other", search_->what, what)};
        search_ = {growth, what};
      };
    };
    return {
        {"--cluster", "C", "file, or cluster as `orrery list clusters` names it; left out: this computer",
         [this](const std::string& v) { cluster_ = v; }},
        {"--devices", "N", "devices of it; left out: all",
         [this](const std::string& v) { devices_ = integer_option("--devices", v, 1); }},
        {"--batch", "N", "samples per device and step; default 1",
         [this](const std::string& v) { request_.batch = integer_option("--batch", v, 1); }},
        {"--sequence", "N", "tokens per sample; default 1024, or as many as the model has places for",
         [this](const std::string& v) { sequence_ = integer_option("--sequence", v, 1); }},
        {"--dtype", "TYPE", "of weights and activations: bf16, f16, f32; default bf16, f16 where there is none",
         [this](const std::string& v) {
           check_choice("--dtype", v, {"bf16", "f16", "f32"});
           dtype_ = v;
         }},
        {"--max-batch", "", "search the largest batch per device", search(FitGrowth::Batch, "batch")},
        {"--max-sequence", "", "search the longest sequence", search(FitGrowth::Sequence, "sequence")},
        {"--max-model", "", "search the largest network of this kind, deeper and wider",
         search(FitGrowth::Model, "model")},
    };
  }
  std::string details() const override {
    return "Each way is predicted without recomputation and with all of it; where only the latter fits, also with "
           "what\n"
           "lies between them, and the fastest that fits is shown. Sizes of --max-model are those among which\n"
           "PatrickStar looks, with more layers between them.\n";
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const auto start = std::chrono::steady_clock::now();
    prepare(context.wiring, arguments[0]);
    const Reproducer reproducer{context.wiring, [&] { context.interrupt.check(); }};
    std::vector<FitRow> rows = evaluate(reproducer, context.console);
    require_some_lowered(rows);
    std::stable_sort(rows.begin(), rows.end(), [&](const FitRow& a, const FitRow& b) { return is_better(a, b); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    context.console.out(context.json ? document(rows, seconds).dump(2) + "\n" : text(rows, seconds, context.console));
    return exit_code::kOk;
  }

 private:
  void prepare(const Wiring& wiring, const std::string& model) {
    name_ = model;
    const std::string model_path = file_of(model, wiring.locations(), &Locations::find_model);
    request_.model = read_yaml(model_path);
    const Model loaded = load_model(model_path);
    parameters_ = loaded.parameter_count();
    std::erase_if(request_.model.fields, [](const auto& f) { return f.first == "_name_or_path"; });
    request_.model.fields.emplace_back("_name_or_path", Node::of(loaded.name));
    const auto* network = std::get_if<Transformer>(&loaded.network);
    const std::int64_t places = network != nullptr && network->max_positions > 0 ? network->max_positions : INT64_MAX;
    request_.sequence = sequence_.value_or(std::min(kUsualSequence, places));
    const std::string path = file_of(cluster_, wiring.locations(), &Locations::find_cluster);
    request_.cluster = read_yaml(path);
    if (devices_) use_devices(request_.cluster, load_cluster(path), *devices_);
    const Machine machine = wiring.machine(read_cluster(request_.cluster, cluster_));
    const ClusterCostModel& cost = *machine.cost;
    request_.ranks = cost.own_memory() ? cost.cluster().num_ranks() : 1;
    request_.room = {cost.capacity(Tier::Device).base(), cost.capacity(Tier::Pinned).base(),
                     cost.capacity(Tier::Disk).base()};
    request_.dtype = dtype_.empty() ? usual_type(cost.device()) : dtype_;
  }

  /// All ways, in their order.
  std::vector<FitRow> evaluate(const Reproducer& reproducer, Console& console) const {
    const std::vector<MemoryWay> ways = memory_ways(request_.ranks, request_.room);
    std::vector<FitRow> rows(ways.size());
    in_parallel(
        ways.size(),
        [&](std::size_t i) {
          rows[i] = search_ ? fit_largest(reproducer, request_, ways[i], search_->growth)
                            : fit(reproducer, request_, ways[i]);
        },
        [&](double done) { console.progress("predicting", done); });
    console.end_progress();
    return rows;
  }

  /// What is wrong with the model or the workload is wrong under all ways.
  static void require_some_lowered(const std::vector<FitRow>& rows) {
    for (const FitRow& r : rows)
      for (const FitTrial& t : r.trials)
        if (t.step > 0 || t.limit != rows.front().best.limit) return;
    throw UserError{rows.front().best.limit};
  }

  bool is_better(const FitRow& a, const FitRow& b) const {
    if (a.best.fits() != b.best.fits()) return a.best.fits();
    if (!a.best.fits()) return false;
    if (search_ && a.largest->value != b.largest->value) return a.largest->value > b.largest->value;
    return a.best.tokens_per_second > b.best.tokens_per_second;
  }

  static std::string peak(const FitTrial& t, Tier a, Tier b) {
    std::int64_t most = 0;
    for (const TierReport& tier : t.tiers)
      if (tier.tier == a || tier.tier == b) most += tier.bytes;
    return most > 0 ? to_text(Bytes{double(most)}) : "-";
  }

  static std::string found(const LargestFit& l) {
    if (l.value == 0) return "-";
    if (!l.size) return std::to_string(l.value);
    return fmt::format("{:.3g} B ({} x {})", double(l.value) * 1e-9, l.size->layers, l.size->hidden);
  }

  std::string head() const {
    const auto room = [](double bytes) { return bytes > 0 ? to_text(Bytes{bytes}) : std::string{"none"}; };
    const auto some = [](std::int64_t n, const char* what) {
      return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
    };
    std::string work = search_ && search_->growth == FitGrowth::Batch ? "samples" : some(request_.batch, "sample");
    if (!search_ || search_->growth != FitGrowth::Sequence) work += fmt::format(" of {} tokens", request_.sequence);
    return fmt::format("{} ({:.3g} B parameters) on {}: {}, {} on each, {}\nper device: memory {}, host {}, disk {}\n",
                       name_, double(parameters_) * 1e-9, cluster_, some(request_.ranks, "device"), work,
                       request_.dtype, room(request_.room.device), room(request_.room.host), room(request_.room.disk));
  }

  std::string text(const std::vector<FitRow>& rows, double seconds, const Console& console) const {
    std::vector<Table::Column> columns{{"way"}, {"recompute"}};
    if (search_) columns.push_back({"largest " + search_->what, Align::Right});
    for (const char* name : {"device", "host", "disk", "step", "tokens/s", "MFU"})
      columns.push_back({name, Align::Right});
    columns.push_back({"most time"});
    columns.push_back({search_ ? "too small for more" : "too small"});
    Table table{columns};
    for (const FitRow& r : rows) {
      const FitTrial& t = r.best;
      const bool known = t.step > 0;
      std::vector<std::string> cells{r.name, t.recompute};
      if (search_) cells.push_back(found(*r.largest));
      cells.insert(cells.end(),
                   {peak(t, Tier::Device, Tier::Device), peak(t, Tier::Pinned, Tier::Host),
                    peak(t, Tier::Disk, Tier::Disk), known ? to_text(Seconds{t.step}) : "-",
                    known ? rate_text(t.tokens_per_second) : "-", known ? fmt::format("{:.1f} %", 100 * t.mfu) : "-",
                    t.slowed.empty() ? "-" : t.slowed, search_ ? r.largest->next : t.limit});
      table.add(cells);
    }
    const auto fitting = std::count_if(rows.begin(), rows.end(), [](const FitRow& r) { return r.best.fits(); });
    return console.bold(head()) + "\n" + table.text("  ") +
           fmt::format("\n{} of {} ways fit; peaks are of one device and its part of host and disk; {:.1f} s\n",
                       fitting, rows.size(), seconds);
  }

  nlohmann::json json_of(const FitTrial& t) const {
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

  nlohmann::json document(const std::vector<FitRow>& rows, double seconds) const {
    nlohmann::json out = {{"schema_version", kSchemaVersion}, {"model", name_},
                          {"parameters", parameters_},        {"cluster", cluster_},
                          {"devices", request_.ranks},        {"batch", request_.batch},
                          {"sequence", request_.sequence},    {"dtype", request_.dtype},
                          {"wall_seconds", seconds},          {"ways", nlohmann::json::array()}};
    for (const FitRow& r : rows) {
      nlohmann::json row = json_of(r.best);
      row["name"] = r.name;
      for (const FitTrial& t : r.trials) row["trials"].push_back(json_of(t));
      if (search_) {
        row["largest"] = {{search_->what, r.largest->value}, {"next", r.largest->next}};
        if (r.largest->size)
          row["largest"].update({{"layers", r.largest->size->layers}, {"hidden", r.largest->size->hidden}});
      }
      out["ways"].push_back(row);
    }
    return out;
  }

  std::string name_, cluster_ = "host", dtype_;
  std::int64_t parameters_ = 0;
  std::optional<std::int64_t> devices_, sequence_;
  FitRequest request_;
  std::optional<Search> search_;
};

}  // namespace

std::unique_ptr<Command> make_fit() { return std::make_unique<Fit>(); }

}  // namespace orrery
