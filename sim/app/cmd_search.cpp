// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/sharding_search.hpp"
#include "sim/app/split_search.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kUsualSamples = 8;  // per device and step
constexpr std::int64_t kUsualRows = 10;
constexpr double kUsualReserve = 0.025;  // of a device: contexts and NCCL take 1 to 3 GiB

class SearchSplits final : public Command {
 public:
  std::string_view name() const override { return "search"; }
  std::string_view summary() const override {
    return "which way to split a training step over the devices of a cluster is fastest";
  }
  std::string_view arguments() const override { return "MODEL"; }
  Arity arity() const override { return {1, 1}; }

  std::vector<Flag> flags() override {
    std::vector<Flag> all = target_.flags();
    all.insert(
        all.end(),
        {{"--batch", "N", "samples per step, of all devices together; default 8 for each",
          [this](const std::string& v) { batch_ = integer_option("--batch", v, 1); }},
         {"--reserve", "PERCENT",
          "of the memory of a device that is kept for what software holds beside tensors; default 2.5, 0 on this "
          "computer",
          [this](const std::string& v) { reserve_ = percent_option("--reserve", v, 0, 99); }},
         {"--no-offload", "", "all tensors stay on devices", [this](const std::string&) { offload_ = false; }},
         {"--planner", "NAME",
          "splits: meshes and what goes with them (default); colossal-auto: how each op of a block lies on the "
          "devices, "
          "with what runs again",
          [this](const std::string& v) {
            check_choice("--planner", v, {"splits", "colossal-auto"});
            shards_ = v == "colossal-auto";
          }},
         {"--rows", "N", "meshes that are shown; default 10",
          [this](const std::string& v) { rows_ = integer_option("--rows", v, 1); }},
         {"--save", "FILE", "write the fastest one as a scenario, for `orrery simulate` and `orrery run`",
          [this](const std::string& v) { save_ = v; }}});
    return all;
  }
  std::string details() const override {
    return "All meshes of stages (pp), replicas (dp), experts (ep), parts of sequences (cp, of 4096 tokens and more)\n"
           "and parts of matrices (tp, within a node) are predicted by 1F1B, with microbatches of 1, 2, 4, … samples\n"
           "until that is slower, at least as many microbatches as stages, and the least recomputation that fits. "
           "Then\n"
           "schedules, what replicas share, buckets and overlap are tried around the fastest, at most six that take\n"
           "no more than a quarter longer, one after another. Stages of those, and of faster splits that equal stages\n"
           "leave no room for, get other numbers of blocks, in balance between time and memory. Then blocks get ways\n"
           "of their own, chosen by what each costs in time and memory: recomputation, what replicas share, and\n"
           "another mesh. Meshes that memory keeps from being the fastest are also predicted with every way to move\n"
           "tensors to host and disk that `orrery fit` knows, four at a time until something fits.\n"
           "`--planner colossal-auto` shards models of equal blocks as Colossal-Auto does: a logical mesh of the\n"
           "cluster, ways of ops by an integer program for several budgets, Rotor's recomputation behind it, the\n"
           "fastest of all.\n";
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const auto start = std::chrono::steady_clock::now();
    TrainingRequest request = target_.read(context.wiring, arguments[0]);
    request.batch = batch_.value_or(kUsualSamples * request.ranks);
    request.reserved = reserve_.value_or(target_.has_own_memory() ? kUsualReserve : 0);
    const Reproducer reproducer{context.wiring, [&] { context.interrupt.check(); }};
    if (shards_) return shard(reproducer, request, context, start);
    const SplitSearch found = search_splits(
        reproducer, request, target_.network(), split_bounds(target_.network(), target_.devices_per_node()),
        offload_ ? tier_ways(request.ranks > 1, request.usable()) : std::vector<TierWay>{},
        static_cast<std::size_t>(rows_),
        [&](std::string_view what, double done) { context.console.progress(what, done); });
    context.console.end_progress();
    if (found.meshes == 0)
      throw UserError{
          fmt::format("no mesh of {} devices splits {} samples and this model", request.ranks, request.batch),
          "replicas have equally many samples: give a --batch with more divisors"};
    if (found.tried == 0) throw UserError{found.refusal};
    if (!save_.empty() && !found.best.empty()) {
      const StepSplit& s = found.best.front().split;
      save(request, s.strategy(), s.recomputation(s.microbatches(request.batch)), context);
    }
    const double seconds = seconds_since(start);
    context.console.out(context.json ? document(request, found, seconds).dump(2) + "\n"
                                     : text(request, found, seconds, context.console));
    return found.best.empty() ? exit_code::kMissed : exit_code::kOk;
  }

 private:
  static std::string on_host(const SplitTrial& t) { return t.trial.peak(Tier::Host, Tier::Pinned); }
  static std::string on_disk(const SplitTrial& t) { return t.trial.peak(Tier::Disk, Tier::Disk); }

  static std::vector<std::string> cells(const SplitTrial& t, const TrainingRequest& q, bool host, bool disk) {
    std::vector<std::string> out{t.split.mesh == SplitMesh{} ? "one device" : t.split.mesh.text(),
                                 fmt::format("{} x {}", t.split.microbatches(q.batch), t.split.samples),
                                 t.split.recomputed(), t.trial.peak(Tier::Device, Tier::Device)};
    if (host) out.push_back(on_host(t));
    if (disk) out.push_back(on_disk(t));
    out.insert(out.end(), {to_text(Seconds{t.trial.step}), rate_text(t.trial.tokens_per_second),
                           fmt::format("{:.1f} %", 100 * t.trial.mfu), fmt::format("{:.1f} %", 100 * t.bubble),
                           t.trial.slowed, t.split.rest()});
    return out;
  }

  using Start = std::chrono::steady_clock::time_point;
  static double seconds_since(Start start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  int shard(const Reproducer& reproducer, const TrainingRequest& q, AppContext& context, Start start) const {
    const ShardingSearch found =
        search_shardings(reproducer, q, target_.network(),
                         [&](std::string_view what, double done) { context.console.progress(what, done); });
    context.console.end_progress();
    const ShardedTrial& best = found.trials.front();
    const bool fits = best.trial.fits();
    if (!save_.empty() && fits) save(q, best.strategy, best.recompute, context);
    const double seconds = seconds_since(start);
    if (context.json) {
      nlohmann::json out = target_.json(q);
      out.update(to_json(found));
      out.update({{"batch", q.batch}, {"wall_seconds", seconds}});
      context.console.out(out.dump(2) + "\n");
    } else {
      std::string out = context.console.bold(head(q)) + "\n" + to_text(found, static_cast<std::size_t>(rows_));
      if (fits)
        out += fmt::format("\n90 % interval of the first {} … {}\n{{{}}}, recompute: {}\n",
                           to_text(Seconds{best.trial.low}), to_text(Seconds{best.trial.high}), best.strategy,
                           best.recompute);
      context.console.out(out + fmt::format("\n{} plans predicted; {:.1f} s\n", found.trials.size(), seconds));
    }
    return fits ? exit_code::kOk : exit_code::kMissed;
  }

  std::string head(const TrainingRequest& q) const {
    return target_.head(q, fmt::format("{} samples of {} tokens", q.batch, q.sequence));
  }

  std::string text(const TrainingRequest& q, const SplitSearch& found, double seconds, const Console& console) const {
    const std::vector<SplitTrial>& shown = found.best.empty() ? found.small : found.best;
    const bool host = std::any_of(shown.begin(), shown.end(), [](const auto& t) { return on_host(t) != "-"; });
    const bool disk = std::any_of(shown.begin(), shown.end(), [](const auto& t) { return on_disk(t) != "-"; });
    std::vector<Table::Column> columns{{"mesh"}, {"microbatch", Align::Right}, {"recompute"}, {"device", Align::Right}};
    if (host) columns.push_back({"host", Align::Right});
    if (disk) columns.push_back({"disk", Align::Right});
    columns.insert(columns.end(), {{"step", Align::Right},
                                   {"tokens/s", Align::Right},
                                   {"MFU", Align::Right},
                                   {"bubble", Align::Right},
                                   {"most time"},
                                   {"with"}});
    Table table{std::move(columns)};
    for (const SplitTrial& t : shown) table.add(cells(t, q, host, disk));
    std::string out = console.bold(head(q)) + "\n";
    if (found.best.empty()) out += "no way to split it fits; closest come\n";
    out += table.text("  ");
    if (!found.best.empty()) {
      const StepSplit& split = found.best.front().split;
      const TrainingTrial& best = found.best.front().trial;
      out += fmt::format("\n90 % interval of the first {} … {}; errors of one cluster are mostly common to its rows\n",
                         to_text(Seconds{best.low}), to_text(Seconds{best.high}));
      out += fmt::format("{{{}}}, recompute: {}\n", split.strategy(), split.recomputation(split.microbatches(q.batch)));
      if (found.best.front().stages.size() > 1) out += "\n" + stages(found.best.front(), q);
    }
    return out + fmt::format("\n{} of {} meshes fit; {} of {} predicted ways do; {:.1f} s\n", found.fit_meshes,
                             found.meshes, found.fitting, found.tried, seconds);
  }

  std::vector<std::int64_t> blocks(const SplitTrial& t, const TrainingRequest& q) const {
    return stage_sizes(t.split, split_bounds(target_.network(), target_.devices_per_node()).layers, q.batch);
  }

  std::string stages(const SplitTrial& t, const TrainingRequest& q) const {
    Table table{{{"stage", Align::Right}, {"blocks", Align::Right}, {"busy", Align::Right}, {"device", Align::Right}}};
    const std::vector<std::int64_t> sizes = blocks(t, q);
    for (std::size_t i = 0; i < t.stages.size(); ++i)
      table.add({fmt::format("{}", i), fmt::format("{}", sizes[i]), to_text(Seconds{t.stages[i].busy}),
                 to_text(Bytes{double(t.stages[i].bytes)})});
    const BalanceDegrees b = balance_of(t.stages);
    return table.text("  ") + fmt::format("balance, 1 - largest/sum: time {:.3f}, memory {:.3f} of {:.3f}\n", b.time,
                                          b.memory, 1 - 1 / double(t.stages.size()));
  }

  nlohmann::json json_of(const SplitTrial& t, const TrainingRequest& q) const {
    nlohmann::json row = to_json(t.trial);
    row.update({{"mesh", t.split.mesh.text()},
                {"strategy", "{" + t.split.strategy() + "}"},
                {"microbatches", t.split.microbatches(q.batch)},
                {"samples", t.split.samples},
                {"tiers", t.split.tiers ? t.split.tiers->name : ""},
                {"bubble", t.bubble}});
    if (t.stages.size() < 2) return row;
    const BalanceDegrees b = balance_of(t.stages);
    row["balance"] = {{"time", b.time}, {"memory", b.memory}};
    const std::vector<std::int64_t> sizes = blocks(t, q);
    for (std::size_t i = 0; i < t.stages.size(); ++i)
      row["stages"].push_back(
          {{"blocks", sizes[i]}, {"busy_seconds", t.stages[i].busy}, {"peak_bytes", t.stages[i].bytes}});
    return row;
  }

  nlohmann::json document(const TrainingRequest& q, const SplitSearch& found, double seconds) const {
    nlohmann::json out = target_.json(q);
    out.update({{"batch", q.batch},
                {"wall_seconds", seconds},
                {"meshes", found.meshes},
                {"tried", found.tried},
                {"fitting", found.fitting},
                {"splits", nlohmann::json::array()}});
    for (const auto* some : {&found.best, &found.small})
      for (const SplitTrial& t : *some) out["splits"].push_back(json_of(t, q));
    return out;
  }

  void save(const TrainingRequest& q, const std::string& strategy, const std::string& recompute,
            AppContext& context) const {
    const std::string text = fmt::format("# The fastest of `orrery search {} --cluster {}` on {} devices.\n",
                                         target_.model(), target_.cluster(), q.ranks) +
                             training_scenario(target_.named(q), strategy, recompute);
    const auto lock = context.interrupt.writing();
    write_file_atomically(save_, text);
  }

  TrainingTarget target_;
  std::optional<std::int64_t> batch_;
  std::optional<double> reserve_;
  bool offload_ = true;
  bool shards_ = false;
  std::int64_t rows_ = kUsualRows;
  std::string save_;
};

}  // namespace

std::unique_ptr<Command> make_search() { return std::make_unique<SearchSplits>(); }

}  // namespace orrery
