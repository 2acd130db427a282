// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "sim/app/commands.hpp"
#include "sim/app/report.hpp"
#include "sim/app/run_directory.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/sweep/bisected_cases.hpp"
#include "sim/app/sweep/slurm_script.hpp"
#include "sim/app/sweep/sweep_points.hpp"
#include "sim/app/sweep/sweep_report.hpp"
#include "sim/app/sweep/sweep_run.hpp"
#include "sim/app/wiring.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

class Sweep final : public Command {
 public:
  std::string_view name() const override { return "sweep"; }
  std::string_view summary() const override { return "predict a scenario under many values of its keys"; }
  std::string_view arguments() const override { return "SCENARIO…"; }
  Arity arity() const override { return {0, 1000}; }

  std::vector<Flag> flags() override {
    std::vector<Flag> all = scenario_.flags();
    const auto whole = [](std::int64_t& to, const char* flag, std::int64_t least) {
      return [&to, flag, least](const std::string& v) { to = integer_option(flag, v, least); };
    };
    all.insert(
        all.end(),
        {{"--sweep", "KEY=VALUES", "what a key takes in turn, see below; repeatable",
          [this](const std::string& v) { axes_.push_back(parse_axis(v)); }},
         {"--sample", "N", "N points of a Latin hypercube in place of all combinations", whole(sample_, "--sample", 1)},
         {"--seed", "N", "of --sample; default 1", whole(seed_, "--seed", 0)},
         {"--jobs", "N", "points at once on this computer; default its cores, 0: workers elsewhere do all",
          whole(jobs_, "--jobs", 0)},
         {"--point-timeout", "TIME", "how long one point may take; default: as long as it does",
          [this](const std::string& v) { timeout_ = time_option("--point-timeout", v); }},
         {"--listen", "HOST:PORT", "let `orrery sweep-worker` join here; without HOST from this computer alone",
          [this](const std::string& v) { listen_ = parse_listen("--listen", v); }},
         {"--token", "FILE", "file that holds the token of workers; default DIR/token, which is made",
          [this](const std::string& v) { token_ = v; }},
         {"--resume", "", "go on in --out: what has a result is not computed again",
          [this](const std::string&) { resume_ = true; }},
         {"--retry", "", "with --resume: try again what was given up", [this](const std::string&) { retry_ = true; }},
         {"--dry-run", "", "list the points and compute none", [this](const std::string&) { dry_ = true; }},
         {"--jsonl", "", "print a line for each point as it ends, in place of a table",
          [this](const std::string&) { lines_ = true; }},
         {"--no-interval", "", "of serving: leave out intervals, which take four more simulations",
          [this](const std::string&) { intervals_ = false; }}});
    all.insert(
        all.end(),
        {{"--shard", "I/N", "only the points that belong to part I of N, as of Slurm arrays",
          [this](const std::string& v) { shard_ = parse_part(v); }},
         {"--merge", "", "in place of scenarios name folders of sweeps, whose results are put together",
          [this](const std::string&) { merge_ = true; }},
         {"--launcher", "slurm", "write DIR/sweep.sbatch, which runs the sweep; --dry-run prints it",
          [this](const std::string& v) { check_choice("--launcher", launcher_ = v, {"slurm"}); }},
         {"--nodes", "N", "of --launcher: nodes of the allocation; default 1", whole(slurm_.nodes, "--nodes", 1)},
         {"--array", "N", "of --launcher: N tasks of an array in place of one allocation",
          whole(slurm_.array, "--array", 1)},
         {"--time", "TIME", "of --launcher: as sbatch takes it, such as 2:00:00",
          [this](const std::string& v) { slurm_.time = v; }}});
    all.push_back({"--bisect", "KEY=FROM,TO",
                   "look between two values for where --until stops to hold; also FROM,TO,STEP",
                   [this](const std::string& v) { bisected_ = parse_bisection(v); }});
    all.push_back({"--until", "CONDITION", "'tokens_per_second>=95%' of the better end, 'step_time<=10 s', 'fits'",
                   [this](const std::string& v) { until_ = parse_condition(v); }});
    all.push_back({"--pareto", "METRICS", "also mark the points that none beats, as by tokens_per_second,peak_memory",
                   [this](const std::string& v) { pareto_ = split_outside(v, ','); }});
    all.push_back({"--out", "DIR", "folder of the results; default runs/<date>-sweep",
                   [this](const std::string& v) { folder_ = v; }});
    return all;
  }

  std::string details() const override {
    return R"(Values are listed, 'workload.train.batch=8,16,32'; doubled, 'cluster.nic.bandwidth=log2(50 GB/s,400 GB/s)';
or evenly spaced, 'workload.train.batch=lin(8,64,8)'. Keys that change together are joined:
'cluster.nodes,workload.train.batch=1:8,2:16'. Keys are those of --set; below `cluster` and `model` those of the
files that are named there. Parameters of the hardware, as `orrery sensitivity` lists them, take factors:
'link.bandwidth=x0.5,x1,x2'.

--bisect 'cluster.nic.bandwidth=5 GB/s,100 GB/s' --until 'tokens_per_second>=95%' finds the least bandwidth that keeps
95 % of the speed with the most; for each combination of the other values, to 1 %, or to a step.

A point is what `orrery simulate`, or `orrery serve`, says of it. One that crashes or takes too long is tried three
times, then told and left out; the exit code is 5 where points have no result. Ctrl-C finishes the points in work.
)";
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    if (merge_) return merge(context, arguments);
    check_options(arguments);
    if (bisected_) return bisect(context, arguments);
    if (!launcher_.empty()) return launch(context);
    plan_ = plan_of(context, arguments);
    prepared_ = prepare(plan_, points(), context.wiring.locations(), [&](double part) {
      context.interrupt.check();
      context.console.progress("reading points", part);
    });
    context.console.end_progress();
    sweep_.keys = plan_.keys;
    for (const PreparedPoint& p : prepared_) sweep_.points.push_back(p.point);
    all_points_ = sweep_.points;
    if (shard_) keep_part();
    if (dry_) return list(context);
    open_folder(context);
    if (const std::size_t known = sweep_.points.size() - sweep_.missing(); known > 0)
      context.console.note(fmt::format("{} of {} points are done", known, sweep_.points.size()));
    compute(context);
    print(context);
    return sweep_.is_whole() ? exit_code::kOk : exit_code::kPartial;
  }

 private:
  void check_options(const std::vector<std::string>& arguments) const {
    if (axes_.empty() && !bisected_) throw UserError{"there is nothing to sweep", "give --sweep KEY=VALUES"};
    if (bisected_.has_value() != until_.has_value())
      throw UserError{"--bisect and --until belong together", "such as --bisect KEY=FROM,TO --until 'step_time<=10 s'"};
    if (bisected_ && (sample_ > 0 || shard_ || listen_ || dry_ || !pareto_.empty() || !launcher_.empty()))
      throw UserError{"with --bisect points follow from results, and are computed here",
                      "leave out --sample, --shard, --listen, --launcher, --pareto and --dry-run"};
    if (resume_ && folder_.empty()) throw UserError{"--resume needs the folder to go on in", "give --out DIR"};
    if (!token_.empty() && !listen_) throw UserError{"--token is for --listen"};
    if (jobs_ == 0 && !listen_) throw UserError{"nobody computes points", "give --listen, or at least one of --jobs"};
    if (retry_ && !resume_) throw UserError{"--retry is for --resume"};
    std::set<std::string> known;
    for (const SweptAxis& axis : axes_)
      for (const std::string& key : axis.keys)
        if (!known.insert(key).second) throw UserError{fmt::format("{} is swept twice", in_quotes(key))};
    if (bisected_ && known.contains(bisected_->key))
      throw UserError{fmt::format("{} is swept and bisected", in_quotes(bisected_->key))};
    std::set<std::string> scenarios;
    for (const std::string& a : arguments)
      if (!scenarios.insert(a).second) throw UserError{fmt::format("{} is named twice", in_quotes(a))};
  }

  /// "3/8": part 3 of 0 … 7.
  struct Part {
    std::int64_t part = 0, parts = 1;
  };
  static Part parse_part(const std::string& text) {
    const std::size_t slash = std::min(text.find('/'), text.size());
    const std::optional<double> i = parse_number(text.substr(0, slash));
    const std::optional<double> n = slash < text.size() ? parse_number(text.substr(slash + 1)) : std::nullopt;
    if (!i || !n || *i != std::floor(*i) || *n != std::floor(*n) || !(*i >= 0 && *i < *n && *n <= 1e6))
      throw UserError{fmt::format("option --shard is {}", in_quotes(text)), "give I/N with I from 0 to N-1"};
    return {static_cast<std::int64_t>(*i), static_cast<std::int64_t>(*n)};
  }

  void keep_part() {
    std::erase_if(prepared_,
                  [&](const PreparedPoint& p) { return !is_in_part(p.point.id, shard_->part, shard_->parts); });
    std::erase_if(sweep_.points, [&](const SweptPoint& p) { return !is_in_part(p.id, shard_->part, shard_->parts); });
  }

  /// Parts that share a folder have a table each.
  std::string results_file() const {
    return shard_ ? fmt::format("{}/results-{}-of-{}.csv", folder_, shard_->part, shard_->parts)
                  : folder_ + "/results.csv";
  }

  int merge(AppContext& context, const std::vector<std::string>& folders) {
    if (!axes_.empty() || bisected_ || resume_ || shard_ || !launcher_.empty())
      throw UserError{"--merge computes nothing", "name folders, and no other options than --out, --json and --jsonl"};
    if (folders.empty()) throw UserError{"there is nothing to merge", "name folders of sweeps"};
    sweep_ = load_sweeps(folders);
    for (const std::string& note : sweep_.notes) context.console.warn(note);
    for (const std::string& id : sweep_.conflicts)
      context.console.warn(fmt::format("there are several results for point {}: the first is kept", id.substr(0, 8)));
    if (!folder_.empty()) {
      if (!shards_in(folder_ + "/shards").empty())
        throw UserError{fmt::format("'{}' holds results of a sweep", folder_), "give another --out"};
      write_points(folder_, sweep_.keys, sweep_.points, command_text(context.command_line));
      ShardFile shard{folder_ + "/shards"};
      for (const auto& [id, record] : sweep_.records) shard.append(record);
      write_results(results_file(), sweep_);
    }
    if (lines_)
      for (std::size_t i = 0; i < sweep_.points.size(); ++i) print_line(context, i);
    print(context);
    return sweep_.is_whole() ? exit_code::kOk : exit_code::kPartial;
  }

  int launch(AppContext& context) {
    if (listen_ || shard_) throw UserError{"the launcher gives --listen and --shard itself", "leave them out"};
    if (folder_.empty()) throw UserError{"--launcher needs a folder that all nodes see", "give --out DIR"};
    slurm_.program = std::filesystem::read_symlink("/proc/self/exe").string();
    slurm_.directory = std::filesystem::current_path().string();
    slurm_.folder = std::filesystem::absolute(folder_).lexically_normal().string();
    slurm_.command = without_options({context.command_line.begin() + 1, context.command_line.end()},
                                     {"--launcher", "--nodes", "--array", "--time", "--out", "--jobs"},
                                     {"--dry-run", "--resume", "--json", "--jsonl"});
    const std::string script = slurm_script(slurm_);
    if (!dry_) {
      const std::string path = slurm_.folder + "/sweep.sbatch";
      std::filesystem::create_directories(slurm_.folder);
      write_file_atomically(path, script);
      context.console.note(fmt::format("submit it by `sbatch {}`", path));
    }
    context.console.out(
        context.json ? nlohmann::json{{"schema_version", kSchemaVersion}, {"script", script}}.dump(2) + "\n" : script);
    return exit_code::kOk;
  }

  SweepPlan plan_of(const AppContext& context, const std::vector<std::string>& arguments) const {
    SweepPlan plan{.intervals = intervals_, .version = tool_version(), .parameters = parameters_digest()};
    for (const std::string& name : arguments.empty() ? std::vector<std::string>{""} : arguments) {
      ScenarioFlags::Named named = scenario_.document(name, context);
      plan.scenarios.push_back({std::move(named.name), with_absolute_files(std::move(named.document))});
    }
    for (const SweptAxis& axis : axes_) plan.keys.insert(plan.keys.end(), axis.keys.begin(), axis.keys.end());
    return plan;
  }

  std::vector<SweepPoint> points() const {
    const std::vector<SweptValues> values =
        sample_ > 0 ? sample_of(axes_, sample_, static_cast<std::uint64_t>(seed_)) : product_of(axes_);
    std::vector<SweepPoint> out;
    for (std::size_t s = 0; s < plan_.scenarios.size(); ++s)
      for (const SweptValues& v : values) out.push_back({s, v});
    return out;
  }

  int list(AppContext& context) const {
    if (context.json || lines_) return list_json(context);
    std::vector<Table::Column> head{{"point", Align::Right}, {"id"}, {"scenario"}};
    for (const std::string& key : sweep_.keys) head.push_back({key, Align::Right});
    head.push_back({"work", Align::Right});
    Table table{std::move(head)};
    std::string refused;
    for (std::size_t i = 0; i < prepared_.size(); ++i) {
      const PreparedPoint& p = prepared_[i];
      std::vector<std::string> row{std::to_string(i), p.point.id.substr(0, 8), p.point.scenario};
      row.insert(row.end(), p.point.values.begin(), p.point.values.end());
      row.push_back(p.refusal.empty() ? fmt::format("{}", p.task.work) : "refused");
      table.add(std::move(row));
      if (!p.refusal.empty()) refused += fmt::format("{} {}: {}\n", context.console.bad("point"), i, p.refusal);
    }
    context.console.out(table.text("  ") + (refused.empty() ? "" : "\n" + refused));
    return refused.empty() ? exit_code::kOk : exit_code::kPartial;
  }

  int list_json(AppContext& context) const {
    nlohmann::json all = nlohmann::json::array();
    bool is_whole = true;
    for (std::size_t i = 0; i < prepared_.size(); ++i) {
      all.push_back(to_json(sweep_, i));
      all.back()["work"] = prepared_[i].task.work;
      if (prepared_[i].refusal.empty()) continue;
      all.back()["error"] = prepared_[i].refusal;
      is_whole = false;
    }
    context.console.out(
        nlohmann::json{{"schema_version", kSchemaVersion}, {"keys", sweep_.keys}, {"points", all}}.dump(2) + "\n");
    return is_whole ? exit_code::kOk : exit_code::kPartial;
  }

  void open_folder(AppContext& context) {
    if (folder_.empty()) folder_ = fmt::format("runs/{:%Y%m%d-%H%M%S}-sweep", fmt::localtime(std::time(nullptr)));
    if (!resume_ && !shard_ && !shards_in(folder_ + "/shards").empty())
      throw UserError{fmt::format("'{}' holds results of a sweep", folder_), "give --resume, or another --out"};
    write_points(folder_, sweep_.keys, all_points_, command_text(context.command_line));
    if (resume_ || shard_) read_shards(folder_, sweep_);
    if (retry_)
      std::erase_if(sweep_.records, [](const auto& r) { return r.second.status == PointStatus::Quarantined; });
    for (const std::string& note : sweep_.notes) context.console.warn(note);
    records_.emplace(folder_ + "/shards");
  }

  void compute(AppContext& context) {
    const SweepRun run{.folder = folder_,
                       .jobs = jobs(),
                       .point_timeout = timeout_.base(),
                       .listen = listen_,
                       .token = token_,
                       .on_point = !lines_ ? std::function<void(std::size_t)>{}
                                           : [&](std::size_t point) { print_line(context, point); }};
    compute_points(plan_, prepared_, run, *records_, sweep_, context);
    write_results(results_file(), sweep_);
    if (const std::size_t left = sweep_.missing(); left > 0)
      context.console.note(fmt::format("{} of {} points are done; go on with --resume --out {}",
                                       sweep_.points.size() - left, sweep_.points.size(), folder_));
    context.interrupt.check();
  }

  std::size_t jobs() const { return static_cast<std::size_t>(jobs_ < 0 ? detected_cores() : jobs_); }

  /// Looks for where the condition stops to hold, for each combination of the values of the other keys.
  int bisect(AppContext& context, const std::vector<std::string>& arguments) {
    plan_ = plan_of(context, arguments);
    plan_.keys.push_back(bisected_->key);
    sweep_.keys = plan_.keys;
    std::vector<BisectedCase> cases;
    for (const SweepPoint& p : points()) cases.push_back({p.scenario, p.values, Boundary{*bisected_}});
    open_folder(context);
    orrery::bisect(*bisected_, *until_, jobs(), cases, sweep_, [&](const std::vector<SweepPoint>& next) {
      prepared_ = prepare(plan_, next, context.wiring.locations(), [&](double) { context.interrupt.check(); });
      for (const PreparedPoint& p : prepared_) sweep_.points.push_back(p.point);
      write_points(folder_, sweep_.keys, sweep_.points, command_text(context.command_line));
      compute(context);
    });
    nlohmann::json document = context.json && !lines_ ? to_json(sweep_) : nlohmann::json::object();
    document["folder"] = folder_;
    document["bisection"] = to_json(cases, *bisected_, *until_, sweep_);
    if (context.json || lines_) {
      context.console.out(document.dump(lines_ ? -1 : 2) + "\n");
    } else {
      context.console.out(to_text(cases, *bisected_, *until_, sweep_, context.console) +
                          fmt::format("\n{} points written to {}\n", sweep_.points.size(), folder_));
    }
    return are_answered(cases) ? exit_code::kOk : exit_code::kPartial;
  }

  void print_line(AppContext& context, std::size_t point) const {
    context.console.out(to_json(sweep_, point).dump() + "\n");
  }

  void print(AppContext& context) const {
    if (lines_) return;
    const std::vector<std::size_t> front = pareto_.empty() ? std::vector<std::size_t>{} : pareto_front(sweep_, pareto_);
    if (!pareto_.empty() && front.empty() && sweep_.count(PointStatus::Done) > 0)
      context.console.warn(fmt::format("no point that fits has all of {}", fmt::join(pareto_, ", ")));
    if (context.json) {
      nlohmann::json document = to_json(sweep_);
      if (!folder_.empty()) document["folder"] = folder_;
      if (!pareto_.empty()) document["pareto"] = front;
      return context.console.out(document.dump(2) + "\n");
    }
    context.console.out(to_text(sweep_, context.console, front) +
                        (folder_.empty() ? "" : fmt::format("\nwritten to {}\n", folder_)));
  }

  ScenarioFlags scenario_;
  std::vector<SweptAxis> axes_;
  std::optional<BisectedKey> bisected_;
  std::optional<Condition> until_;
  std::vector<std::string> pareto_;
  std::int64_t sample_ = 0, seed_ = 1, jobs_ = -1;
  Seconds timeout_;
  bool resume_ = false, retry_ = false, dry_ = false, lines_ = false, intervals_ = true;
  std::string folder_, token_;
  std::optional<ListenAt> listen_;
  std::optional<Part> shard_;
  bool merge_ = false;
  std::string launcher_;
  SlurmRequest slurm_;
  SweepPlan plan_;
  std::vector<PreparedPoint> prepared_;
  std::vector<SweptPoint> all_points_;  // of all parts
  SweepResults sweep_;
  std::optional<ShardFile> records_;
};

}  // namespace

std::unique_ptr<Command> make_sweep() { return std::make_unique<Sweep>(); }

}  // namespace orrery
