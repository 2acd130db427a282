// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/memory_ways.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/base/parallel.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

struct Search {
  FitGrowth growth;
  std::string what;
};

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
    std::vector<Flag> all = target_.flags();
    all.insert(all.end(),
               {
                   {"--batch", "N", "samples per device and microbatch; default 1",
                    [this](const std::string& v) { batch_ = integer_option("--batch", v, 1); }},
                   {"--microbatches", "N", "microbatches of a step; default 1",
                    [this](const std::string& v) { microbatches_ = integer_option("--microbatches", v, 1); }},
                   {"--max-batch", "", "search the largest --batch", search(FitGrowth::Batch, "batch")},
                   {"--max-sequence", "", "search the longest sequence", search(FitGrowth::Sequence, "sequence")},
                   {"--max-model", "", "search the largest network of this kind, deeper and wider",
                    search(FitGrowth::Model, "model")},
               });
    return all;
  }
  std::string details() const override {
    return "Each way is predicted without recomputation and with all of it; where only the latter fits, also with "
           "what\n"
           "lies between them, and the fastest that fits is shown. Sizes of --max-model are those among which\n"
           "PatrickStar looks, with more layers between them.\n";
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const auto start = std::chrono::steady_clock::now();
    request_ = target_.read(context.wiring, arguments[0]);
    request_.microbatches = microbatches_;
    request_.batch = batch_ * request_.ranks * microbatches_;
    const Reproducer reproducer{context.wiring, [&] { context.interrupt.check(); }};
    std::vector<FitRow> rows = evaluate(reproducer, context.console);
    require_some_lowered(rows);
    std::stable_sort(rows.begin(), rows.end(), [&](const FitRow& a, const FitRow& b) { return is_better(a, b); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    context.console.out(context.json ? document(rows, seconds).dump(2) + "\n" : text(rows, seconds, context.console));
    return exit_code::kOk;
  }

 private:
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
      for (const TrainingTrial& t : r.trials)
        if (t.is_open() || t.limit != rows.front().best.limit) return;
    throw UserError{rows.front().best.limit};
  }

  bool is_better(const FitRow& a, const FitRow& b) const {
    if (a.best.fits() != b.best.fits()) return a.best.fits();
    if (!a.best.fits()) return false;
    if (search_ && a.largest->value != b.largest->value) return a.largest->value > b.largest->value;
    return a.best.tokens_per_second > b.best.tokens_per_second;
  }

  static std::string found(const LargestFit& l) {
    if (l.value == 0) return "-";
    if (!l.size) return std::to_string(l.value);
    return fmt::format("{:.3g} B ({} x {})", double(l.value) * 1e-9, l.size->layers, l.size->hidden);
  }

  std::string head() const {
    std::string work = search_ && search_->growth == FitGrowth::Batch
                           ? "samples"
                           : fmt::format("{} sample{}", batch_, batch_ == 1 ? "" : "s");
    if (!search_ || search_->growth != FitGrowth::Sequence) work += fmt::format(" of {} tokens", request_.sequence);
    work += " on each";
    if (microbatches_ > 1) work += fmt::format(" in each of {} microbatches", microbatches_);
    return target_.head(request_, work);
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
      const TrainingTrial& t = r.best;
      const bool known = t.is_open();
      std::vector<std::string> cells{r.name, t.recompute};
      if (search_) cells.push_back(found(*r.largest));
      cells.insert(cells.end(),
                   {t.peak(Tier::Device, Tier::Device), t.peak(Tier::Pinned, Tier::Host),
                    t.peak(Tier::Disk, Tier::Disk), known ? to_text(Seconds{t.step}) : "-",
                    known ? rate_text(t.tokens_per_second) : "-", known ? fmt::format("{:.1f} %", 100 * t.mfu) : "-",
                    t.slowed.empty() ? "-" : t.slowed, search_ ? r.largest->next : t.limit});
      table.add(cells);
    }
    const auto fitting = std::count_if(rows.begin(), rows.end(), [](const FitRow& r) { return r.best.fits(); });
    return console.bold(head()) + "\n" + table.text("  ") +
           fmt::format("\n{} of {} ways fit; peaks are of one device and its part of host and disk; {:.1f} s\n",
                       fitting, rows.size(), seconds);
  }

  nlohmann::json document(const std::vector<FitRow>& rows, double seconds) const {
    nlohmann::json out = target_.json(request_);
    out.update({{"batch", batch_},
                {"microbatches", microbatches_},
                {"wall_seconds", seconds},
                {"ways", nlohmann::json::array()}});
    for (const FitRow& r : rows) {
      nlohmann::json row = to_json(r.best);
      row["name"] = r.name;
      for (const TrainingTrial& t : r.trials) row["trials"].push_back(to_json(t));
      if (search_) {
        row["largest"] = {{search_->what, r.largest->value}, {"next", r.largest->next}};
        if (r.largest->size)
          row["largest"].update({{"layers", r.largest->size->layers}, {"hidden", r.largest->size->hidden}});
      }
      out["ways"].push_back(row);
    }
    return out;
  }

  TrainingTarget target_;
  std::int64_t batch_ = 1, microbatches_ = 1;
  TrainingRequest request_;
  std::optional<Search> search_;
};

}  // namespace

std::unique_ptr<Command> make_fit() { return std::make_unique<Fit>(); }

}  // namespace orrery
