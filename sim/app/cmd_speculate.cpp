// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "sim/app/commands.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/speculation_plot.hpp"
#include "sim/app/speculation_study.hpp"
#include "sim/app/wiring.hpp"
#include "sim/base/table.hpp"
#include "sim/base/whole_number.hpp"

namespace orrery {
namespace {

struct Method {
  std::string name, source, speculate;  // the last as JSON
};

/// What a method comes to at the batch sizes asked for.
struct SpeculationRow {
  Method method;
  std::vector<GenerationSpeed> speeds;
  std::vector<double> speedups;
  std::optional<double> break_even;
};

std::int64_t batch_size(std::string_view text) {
  const auto n = whole_number<std::int64_t>(text);
  if (!n || *n < 1 || *n > 65536)
    throw UserError{fmt::format("'{}' is no batch size", text), "give one like 8, several like 1,8,64, or 1..64"};
  return *n;
}

/// "1..64": powers of two between them and both ends; "1,8,24": these.
std::vector<std::int64_t> batches_of(const std::string& text) {
  std::vector<std::int64_t> out;
  if (const std::size_t dots = text.find(".."); dots != std::string::npos) {
    const std::int64_t first = batch_size(std::string_view{text}.substr(0, dots)),
                       last = batch_size(std::string_view{text}.substr(dots + 2));
    if (first > last) throw UserError{fmt::format("batch sizes from {} to {}", first, last), "the smaller comes first"};
    out.push_back(first);
    for (std::int64_t b = 1; b < last; b *= 2)
      if (b > first) out.push_back(b);
    if (last > first) out.push_back(last);
    return out;
  }
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    out.push_back(batch_size(std::string_view{text}.substr(at, comma - at)));
    at = comma + 1;
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

/// The batch at which the gain is used up, between the two sizes around it; none where it lasts, 0 where there is none.
std::optional<double> break_even(const std::vector<std::int64_t>& batches, const std::vector<double>& speedups) {
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (speedups[i] >= 1) continue;
    if (i == 0) return 0.0;
    const double gained = std::log(speedups[i - 1]), lost = -std::log(speedups[i]);
    const double from = std::log2(double(batches[i - 1])), to = std::log2(double(batches[i]));
    return std::exp2(from + (to - from) * gained / (gained + lost));
  }
  return {};
}

std::string even_text(const SpeculationRow& row) {
  if (!row.break_even) return "beyond";
  return *row.break_even > 0 ? fmt::format("{:.0f}", *row.break_even) : "none";
}

class Speculate final : public Command {
 public:
  std::string_view name() const override { return "speculate"; }
  std::string_view summary() const override { return "which drafter, tree and size is fastest at which batch"; }
  std::string_view arguments() const override { return "MODEL"; }
  Arity arity() const override { return {1, 1}; }
  std::vector<Flag> flags() override {
    const auto into = [](std::string& to) { return [&to](const std::string& v) { to = v; }; };
    return {
        {"--cluster", "CLUSTER", "a file or one of `orrery list clusters`; left out: this computer", into(cluster_)},
        {"--batch", "SIZES", "1..64 (powers of two), or a list like 1,8,24; left out: 1..64", into(batch_)},
        {"--prompt", "TOKENS", "context before the tokens that are timed; left out: 512",
         [this](const std::string& v) { prompt_ = integer_option("--prompt", v, 1); }},
        {"--dtype", "TYPE", "f32, bf16 or f16; left out: bf16, on this computer f32",
         [this](const std::string& v) {
           check_choice("--dtype", v, {"f32", "bf16", "f16"});
           dtype_ = v;
         }},
        {"--profile", "NAME", "of the software, one of `orrery list profiles`", into(profile_)},
        {"--methods", "FILE", "what is compared; left out: scenarios/speculation_methods.yaml", into(methods_)},
        {"--plot", "FILE", "speed-ups over batch sizes as SVG", into(plot_)}};
  }
  std::string details() const override {
    return "Each method is lowered to plans and simulated at each batch size; tokens per round are drawn from the\n"
           "accuracy that the file of methods gives. Break-even is the batch at which the gain is used up.\n";
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const std::vector<std::int64_t> batches = batches_of(batch_);
    const std::vector<Method> methods = read_methods(context);
    context.wiring.locations().find_model(arguments[0]);  // refused by its own name, not by that of a scenario
    const Reproducer reproducer{context.wiring, [&] { context.interrupt.check(); }};
    GenerationCase at{to_json_text(arguments[0]),
                      to_json_text(cluster_),
                      profile_,
                      1,
                      prompt_,
                      !dtype_.empty()      ? dtype_
                      : cluster_ == "host" ? "f32"
                                           : "bf16"};
    std::vector<GenerationSpeed> plain;
    std::vector<SpeculationRow> rows;
    for (const Method& m : methods) rows.push_back({m, {}, {}, {}});
    for (std::size_t i = 0; i < batches.size(); ++i) {
      at.batch = batches[i];
      plain.push_back(generation_speed(reproducer, at, {}));
      for (std::size_t k = 0; k < rows.size(); ++k) {
        context.console.progress("speculating", double(i * rows.size() + k) / double(batches.size() * rows.size()));
        rows[k].speeds.push_back(generation_speed(reproducer, at, rows[k].method.speculate));
        rows[k].speedups.push_back(speedup(rows[k].speeds.back(), plain.back()));
      }
    }
    context.console.end_progress();
    for (SpeculationRow& row : rows) row.break_even = break_even(batches, row.speedups);
    if (!plot_.empty()) write_plot(context, arguments[0], batches, rows);
    context.console.out(context.json ? document(arguments[0], batches, plain, rows).dump(2) + "\n"
                                     : text(context, arguments[0], batches, plain, rows));
    return exit_code::kOk;
  }

 private:
  static std::string to_json_text(const std::string& s) { return nlohmann::json(s).dump(); }

  std::vector<Method> read_methods(const AppContext& context) const {
    const std::string file =
        methods_.empty() ? context.wiring.locations().scenarios() + "/speculation_methods.yaml" : methods_;
    const Node document = read_yaml(file);
    const Node* list = document.find("methods");
    if (list == nullptr || list->kind != Node::Kind::List || list->items.empty())
      throw UserError{at(document, "expected a list `methods`")};
    std::vector<Method> out;
    for (const Node& item : list->items) {
      const Node *name = item.find("name"), *speculate = item.find("speculate"), *source = item.find("source");
      if (name == nullptr || speculate == nullptr)
        throw UserError{at(item, "a method has a `name` and what it does under `speculate`")};
      SpeculateOptions checked;
      read_options(*speculate, checked);
      out.push_back({name->scalar, source ? source->scalar : std::string{}, to_canonical_json(*speculate)});
    }
    return out;
  }

  struct Fastest {
    std::string name;
    double speedup = 1;
  };
  /// Of what fits, decoding token by token included.
  static Fastest fastest_of(const std::vector<GenerationSpeed>& plain, const std::vector<SpeculationRow>& rows,
                            std::size_t batch) {
    Fastest best{plain[batch].fits ? "none" : "no room for any"};
    for (const SpeculationRow& row : rows)
      if (row.speeds[batch].fits && row.speedups[batch] > best.speedup) best = {row.method.name, row.speedups[batch]};
    return best;
  }

  std::string text(const AppContext& context, const std::string& model, const std::vector<std::int64_t>& batches,
                   const std::vector<GenerationSpeed>& plain, const std::vector<SpeculationRow>& rows) const {
    std::vector<Table::Column> columns{{"method"}, {"tokens", Align::Right}, {"verified", Align::Right}};
    for (const std::int64_t b : batches) columns.push_back({fmt::format("batch {}", b), Align::Right});
    columns.push_back({"break-even", Align::Right});
    Table table{columns};
    std::vector<std::string> cells{"none, tokens/s", "1", "1"};
    const auto room = [](const GenerationSpeed& s) { return s.fits ? "" : " (no room)"; };
    for (std::size_t i = 0; i < batches.size(); ++i)
      cells.push_back(fmt::format("{:.0f}{}", double(batches[i]) * plain[i].of_sequence(), room(plain[i])));
    cells.emplace_back();
    table.add(cells);
    for (const SpeculationRow& row : rows) {
      cells = {row.method.name, fmt::format("{:.2f}", row.speeds[0].tokens),
               fmt::format("{:.0f}", row.speeds[0].verified)};
      for (std::size_t i = 0; i < batches.size(); ++i)
        cells.push_back(fmt::format("{:.2f}x{}", row.speedups[i], room(row.speeds[i])));
      cells.push_back(even_text(row));
      table.add(cells);
    }
    std::string best;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const Fastest f = fastest_of(plain, rows, i);
      best += fmt::format("  batch {:<4} {}{}\n", batches[i], f.name,
                          f.speedup > 1 ? fmt::format(" ({:.2f}x)", f.speedup) : std::string{});
    }
    return fmt::format("{} {} on {}: speed-up over decoding token by token, contexts of {}\n{}\nfastest\n{}",
                       context.console.bold("speculate"), model, cluster_, prompt_, table.text("  "), best);
  }

  nlohmann::json document(const std::string& model, const std::vector<std::int64_t>& batches,
                          const std::vector<GenerationSpeed>& plain, const std::vector<SpeculationRow>& rows) const {
    nlohmann::json out{{"schema_version", kSchemaVersion},
                       {"model", model},
                       {"cluster", cluster_},
                       {"batches", batches},
                       {"prompt", prompt_}};
    for (std::size_t i = 0; i < batches.size(); ++i) {
      out["plain"].push_back({{"batch", batches[i]},
                              {"step", plain[i].step},
                              {"tokens_per_second", double(batches[i]) * plain[i].of_sequence()}});
      out["fastest"].push_back(fastest_of(plain, rows, i).name);
    }
    for (const SpeculationRow& row : rows) {
      nlohmann::json m{{"name", row.method.name}, {"source", row.method.source}};
      m["break_even"] = row.break_even ? nlohmann::json(*row.break_even) : nlohmann::json{};
      for (std::size_t i = 0; i < batches.size(); ++i) {
        const GenerationSpeed& s = row.speeds[i];
        m["at"].push_back({{"batch", batches[i]},
                           {"speedup", row.speedups[i]},
                           {"step", s.step},
                           {"drafting", s.drafting},
                           {"tokens_per_round", s.tokens},
                           {"verified_per_round", s.verified},
                           {"fits", s.fits}});
      }
      out["methods"].push_back(std::move(m));
    }
    return out;
  }

  void write_plot(AppContext& context, const std::string& model, const std::vector<std::int64_t>& batches,
                  const std::vector<SpeculationRow>& rows) const {
    std::vector<SpeculationCurve> curves;
    for (const SpeculationRow& row : rows) curves.push_back({row.method.name, row.speedups});
    const auto lock = context.interrupt.writing();
    write_file_atomically(
        plot_, speculation_svg(fmt::format("{} on {}: speed-up by speculation", model, cluster_), batches, curves));
  }

  std::string cluster_ = "host", batch_ = "1..64", dtype_, profile_, methods_, plot_;
  std::int64_t prompt_ = 512;
};

}  // namespace

std::unique_ptr<Command> make_speculate() { return std::make_unique<Speculate>(); }

}  // namespace orrery
