// SPDX-License-Identifier: Apache-2.0
// Laws of GPU kernels against whole published tables, where the folder that ORRERY_TABLES names has them: what holds of
// the parts that no fit has seen.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "sim/app/accuracy/report.hpp"
#include "tests/app_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

struct Bound {
  const char* table;
  double median, p90;     // of the random fifth
  double largest_median;  // of the fifth with the most work
};

const Bound kBounds[] = {
    {"kernels_gemm.csv", 0.05, 0.15, 0.08},
    {"kernels_attention.csv", 0.06, 0.18, 0.08},
    {"kernels_moe_a100.csv", 0.08, 0.25, 0.12},
    {"kernels_fp32_neusight.csv", 0.06, 0.25, 0.06},
};

const Score& part(const std::vector<TableSlice>& slices, std::string_view name) {
  for (const TableSlice& s : slices)
    if (s.by == "part" && s.name == name) return s.score;
  throw std::runtime_error{"no such part"};
}

}  // namespace

TEST_CASE("kernels of published tables are predicted as closely as the page of accuracy says") {
  const char* folder = std::getenv("ORRERY_TABLES");
  if (!folder) {
    std::printf("SKIPPED: ORRERY_TABLES does not name a folder of published tables\n");
    return;
  }
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  for (const Bound& b : kBounds) {
    const std::string path = (std::filesystem::path{folder} / b.table).string();
    if (!std::filesystem::exists(path)) {
      std::printf("SKIPPED: no table %s\n", path.c_str());
      continue;
    }
    INFO(b.table);
    const CsvTable table = read_csv(path);
    const JudgedTable judged = judge(evaluate(table, kind_of(table), wiring, [](double) {}));
    REQUIRE(judged.quantities.size() == 1);
    const JudgedQuantity& q = judged.quantities.front();
    CHECK(double(judged.table.num_predicted()) >= 0.95 * double(table.num_rows()));
    CHECK(part(q.slices, "random").median_abs_error <= b.median);
    CHECK(part(q.slices, "random").p90_abs_error <= b.p90);
    CHECK(part(q.slices, "largest").median_abs_error <= b.largest_median);
    CHECK(q.all.coverage >= 0.85);
    CHECK(q.all.coverage <= 0.95);
    CHECK(*q.all.spearman >= 0.98);
  }
}
