// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "sim/app/accuracy/left_out.hpp"
#include "sim/app/accuracy/plot.hpp"
#include "sim/app/accuracy/report.hpp"
#include "tests/app_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

AccuracyPoint point(double measured, double predicted, double low, double high) {
  AccuracyPoint p;
  p.value.measured = measured;
  p.value.predicted = predicted;
  p.value.low = low;
  p.value.high = high;
  return p;
}

Score score_all(const std::vector<AccuracyPoint>& points) {
  PointRefs refs;
  for (const AccuracyPoint& p : points) refs.push_back(&p);
  return score(refs);
}

RowPrediction row(double measured, double predicted, const std::string& key) {
  Observation o;
  o.measured = measured;
  o.predicted = predicted;
  o.low = predicted / 2;
  o.high = predicted * 2;
  o.key = key;
  return {{o}, {{"fits", true, predicted, 1}}};
}

constexpr const char* kTable =
    "row_id,gpu,dtype,m,n,k,latency_us,software,notes,confidence\n"
    "a,H100-80GB-SXM,bf16,4096,4096,4096,200,x,,source\n"
    "b,H100-80GB-SXM,bf16,4096,4096,4096,220,x,,source\n"
    "c,H100-80GB-SXM,bf16,8192,4096,4096,400,x,,source\n"
    "d,H100-80GB-SXM,bf16,16,4096,4096,20,x,the host is misconfigured,source\n"
    "e,Nameless,bf16,16,4096,4096,20,x,,source\n";

/// Rows of one GPU share what serves one thread at a time.
class SharingPredictor final : public RowPredictor {
 public:
  RowResult predict(const CsvRow& r) const override {
    const std::lock_guard lock{mutex_};
    order_[std::string{r["gpu"]}].push_back({std::this_thread::get_id(), r.index()});
    return row(1, 1, "");
  }
  std::string shared_by(const CsvRow& r) const override { return std::string{r["gpu"]}; }
  ~SharingPredictor() override {
    for (const auto& [gpu, rows] : order_)
      for (std::size_t i = 1; i < rows.size(); ++i) {
        CHECK(rows[i].first == rows[0].first);
        CHECK(rows[i].second > rows[i - 1].second);
      }
    CHECK(order_.size() == 2);
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<std::pair<std::thread::id, std::size_t>>> order_;
};

}  // namespace

TEST_CASE("rows that share something are predicted by one thread, in their order") {
  std::string text = "row_id,gpu\n";
  for (int i = 0; i < 200; ++i) text += fmt::format("r{},{}\n", i, i % 3 == 0 ? "A" : "B");
  const CsvTable table{text, "t.csv"};
  RowKind kind;
  kind.make = [](const Wiring&) { return std::make_unique<SharingPredictor>(); };
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const EvaluatedTable t = evaluate(table, kind, Wiring{environment}, [](double) {});
  CHECK(t.num_predicted() == 200);
}

TEST_CASE("errors, coverage and half-widths of four points, by hand") {
  // errors: 0.1, 0.2, 0.3, 0.4
  const Score s = score_all({point(10, 11, 9, 12), point(10, 8, 9, 11), point(10, 13, 5, 12), point(10, 6, 7, 9)});
  CHECK(s.points == 4);
  CHECK(s.median_abs_error == Approx(0.25));
  CHECK(s.mean_abs_error == Approx(0.25));
  CHECK(s.p90_abs_error == Approx(0.37));  // at 2.7 of 0 … 3: 0.3 + 0.7·0.1
  CHECK(s.worst == Approx(0.4));
  CHECK(s.median_signed_error == Approx(-0.05));  // of −0.4, −0.2, 0.1, 0.3
  CHECK(s.coverage == Approx(0.75));              // 10 lies in 9–12, 9–11, 5–12, not in 7–9
  // half-widths: 1.5/11, 1/8, 3.5/13, 1/6
  CHECK(s.median_half_width == Approx((1.5 / 11 + 1.0 / 6) / 2));
  CHECK_FALSE(s.spearman);  // measured values are equal
}

TEST_CASE("rank correlation of a swap of neighbours, and with ties") {
  CHECK(*spearman({1, 2, 3, 4}, {10, 30, 20, 40}) == Approx(0.8));  // 1 − 6·2/(4·15)
  CHECK(*spearman({1, 2, 3}, {3, 2, 1}) == Approx(-1));
  // ranks 0.5 0.5 2 against 0 1 2: Σab = 0.5·1 + 0 + 1·1 = 1.5, Σa² = 1.5, Σb² = 2
  CHECK(*spearman({5, 5, 9}, {1, 2, 3}) == Approx(1.5 / std::sqrt(3.0)));
  CHECK_FALSE(spearman({1, 2}, {1, 2}));
}

TEST_CASE("repeats are averaged before anything is judged") {
  EvaluatedTable t{
      "t.csv", "gemm", {"a", "b", "c"}, {row(1, 2, "x"), row(3, 2, "x"), Skip{SkipReason::Incomplete, "m"}}};
  const JudgedTable j = judge(t);
  REQUIRE(j.quantities.size() == 1);
  REQUIRE(j.quantities[0].points.size() == 1);
  CHECK(j.quantities[0].points[0].value.measured == 2);
  CHECK(j.quantities[0].points[0].repeats == 2);
  CHECK(j.quantities[0].all.median_abs_error == 0);
  CHECK(j.table.num_predicted() == 2);
  REQUIRE(j.outcomes.size() == 1);
  CHECK(j.outcomes[0].right == 2);
}

TEST_CASE("rank correlations within sweeps count sweeps of five points") {
  std::vector<AccuracyPoint> points;
  for (int i = 0; i < 5; ++i) points.push_back(point(i + 1, 10 - i, 0, 1)), points.back().value.sweep = "down";
  for (int i = 0; i < 5; ++i) points.push_back(point(i + 1, i + 1, 0, 1)), points.back().value.sweep = "up";
  points.push_back(point(1, 1, 0, 1));
  points.back().value.sweep = "short";
  const SweepScore s = score_sweeps(points);
  CHECK(s.sweeps == 2);
  CHECK(s.mean_spearman == Approx(0));
  CHECK(s.least_spearman == Approx(-1));
}

TEST_CASE("accuracy of a table from the command line") {
  const TemporaryFolder folder;
  const std::string table = folder.file("t.csv", kTable), plot = folder / "p.svg";
  const CommandResult r = testing::orrery({"accuracy", table, "--json", "--per-row", "--plot", plot});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const auto t = nlohmann::json::parse(r.out)["tables"][0];
  CHECK(t["kind"] == "gemm");
  CHECK(t["rows"] == 5);
  CHECK(t["predicted"] == 3);
  CHECK(t["points"] == 2);  // a and b are repeats
  REQUIRE(t["skipped"].size() == 2);
  CHECK(t["skipped"][0]["row_id"] == "d");
  CHECK(t["skipped"][0]["why"] == "left_out");
  CHECK(t["skipped"][1]["why"] == "unknown_device");
  REQUIRE(t["per_row"].size() == 3);
  CHECK(t["per_row"][1]["measured"] == Approx(220e-6));
  CHECK(t["per_row"][1]["low"] < t["per_row"][1]["predicted"]);
  CHECK(read_file(plot).starts_with("<svg"));
  CHECK(testing::orrery({"accuracy", table}).out.find("5 rows, 3 predicted, 2 skipped") != std::string::npos);
}

TEST_CASE("tables of an unknown kind and options that do nothing are refused") {
  const TemporaryFolder folder;
  const std::string other = folder.file("o.csv", "gpu,dtype,m,n\n"), table = folder.file("t.csv", kTable);
  const CommandResult r = testing::orrery({"accuracy", other});
  CHECK(r.code == 2);
  CHECK(r.err.find("o.csv:1: the head of this table is that of no kind of table that is known") != std::string::npos);
  CHECK(r.err.find("nearest is 'gemm', which also has the columns k, latency_us; known kinds: gemm, attention") !=
        std::string::npos);
  CHECK(testing::orrery({"accuracy", table, "--per-row"}).code == 2);
  CHECK(testing::orrery({"accuracy"}).code == 2);
  CHECK(testing::orrery({"accuracy", folder / "none.csv"}).code == 2);
}

TEST_CASE("a folder is judged table by table, and names those of no known kind") {
  const TemporaryFolder folder;
  folder.file("b.csv", kTable);
  folder.file("a.csv", "gpu,dtype,m,n\n");
  folder.file("notes.txt", "no table");
  const std::string path = folder / "";
  const CommandResult r = testing::orrery({"accuracy", path, "--json"});
  REQUIRE(r.code == 0);
  const auto d = nlohmann::json::parse(r.out);
  REQUIRE(d["tables"].size() == 1);
  CHECK(d["tables"][0]["predicted"] == 3);
  REQUIRE(d["unknown_tables"].size() == 1);
  CHECK(d["unknown_tables"][0]["file"].get<std::string>().ends_with("a.csv"));
  CHECK(d["unknown_tables"][0]["why"] == "nearest is 'gemm', which also has the columns k, latency_us");
  const CommandResult text = testing::orrery({"accuracy", path});
  CHECK(text.code == 0);
  CHECK(text.out.find("a.csv: skipped, of no kind that is known\n  nearest is 'gemm'") != std::string::npos);
  const TemporaryFolder empty;
  CHECK(testing::orrery({"accuracy", empty / ""}).code == 2);
}

TEST_CASE("the page of tables names every kind, reason and rule") {
  const std::string page = read_file(ORRERY_SOURCE_DIR "/scenarios/tables.md");
  for (const RowKind& k : row_kinds()) {
    INFO(k.name);
    CHECK(page.find("`" + std::string{k.name} + "`") != std::string::npos);
    CHECK(page.find("`" + std::string{k.columns} + "`") != std::string::npos);
  }
  for (const EnumName<SkipReason>& r : enum_names(SkipReason{})) {
    INFO(r.name);
    CHECK(page.find("| `" + std::string{r.name} + "` | " + std::string{summary_of(r.value)}) != std::string::npos);
  }
  for (const LeftOutRule& r : left_out_rules()) {
    INFO(r.says);
    CHECK(page.find("| `" + std::string{r.column} + "` | " + std::string{r.says} + " | ") != std::string::npos);
  }
}
