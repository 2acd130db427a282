// SPDX-License-Identifier: Apache-2.0
// Published tables: which device a row is of, which part of the table it belongs to, what work it says, and laws of it.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <cmath>

#include "calibrate/fit_gpu.hpp"
#include "calibrate/published/devices.hpp"
#include "calibrate/published/kernels.hpp"
#include "calibrate/published/split.hpp"
#include "tests/hw_models_testing.hpp"

using namespace orrery;

namespace {

KernelRow read(KernelRow (*reader)(const CsvRow&), const std::string& text) {
  const CsvTable t{text, "some/t.csv"};
  return reader(t.row(0));
}

const std::string kGemm = "row_id,gpu,dtype,m,n,k,latency_us,software\n";

}  // namespace

TEST_CASE("names of GPUs in tables lead to parameter files") {
  CHECK(device_of("H100-80GB-SXM") == "h100_sxm");
  CHECK(device_of("NVIDIA H100 80GB HBM3") == "h100_sxm");
  CHECK(device_of("NVIDIA H100-PCIe-80GB") == "h100_pcie");
  CHECK(device_of("Dell H200 NVL") == "h200_nvl");
  CHECK(device_of("A100-SXM4-40GB") == "a100_40g");
  CHECK(device_of("A100-80GB-SXM4 (p4de.24xlarge)") == "a100_80g");
  CHECK(device_of("GB200 (NVL72)") == "gb200");
  CHECK(device_of("NVIDIA Blackwell GPU (B200-SXM-180GB)") == "b200");
  CHECK(device_of("TPU v5p").empty());
  CHECK(device_of("L40").empty());  // not an L4
}

TEST_CASE("the largest fifth of each group is kept, and a fifth of the rest by the hash of ids") {
  std::vector<std::string> ids;
  for (int i = 0; i < 1000; ++i) ids.push_back("row-" + std::to_string(i));
  std::vector<SplitItem> items;
  for (int i = 0; i < 1000; ++i) items.push_back({ids[std::size_t(i)], i % 2 ? "odd" : "even", double(i / 2)});
  const std::vector<RowSplit> splits = split_rows(items);
  // sizes of a group are 0 … 499: the 0.8 quantile is 399.2, so 400 … 499 are largest: 100 of each group
  CHECK(std::count(splits.begin(), splits.end(), RowSplit::Largest) == 200);
  for (int i = 0; i < 1000; ++i) CHECK((splits[std::size_t(i)] == RowSplit::Largest) == (i / 2 >= 400));
  // a fifth of 800 is 160, with σ = √(800·0.2·0.8) = 11.3: within 4σ
  const auto random = std::count(splits.begin(), splits.end(), RowSplit::Random);
  CHECK(random > 115);
  CHECK(random < 205);
  CHECK(is_random_fifth("row-7") == is_random_fifth("row-7"));
}

TEST_CASE("a row of products is a product") {
  const KernelCase c = std::get<KernelCase>(read(read_gemm_row, kGemm + "g-1,H100-80GB-SXM,fp8,2,3,4,5.5,x 1\n"));
  CHECK(c.row_id == "g-1");
  CHECK(c.device == "h100_sxm");
  CHECK(c.seconds == Approx(5.5e-6));
  CHECK(c.size == 48);  // 2·2·3·4
  REQUIRE(c.works.size() == 1);
  CHECK(c.works[0] == Work{Gemm{.m = 2, .n = 3, .k = 4, .dtype = DType::F8E4M3}});
}

TEST_CASE("repeats are one measurement of the mean time") {
  const auto row = [](const std::string& text) { return std::get<KernelCase>(read(read_gemm_row, kGemm + text)); };
  const auto all =
      averaged({row("1,B200,fp8,2,3,4,1,x\n"), row("2,B200,fp8,2,3,5,1,x\n"), row("3,B200,fp8,2,3,4,4,x\n"),
                row("4,B200,fp8,2,3,4,4,x\n"), row("5,B200,fp8,2,3,4,4,another harness\n")});
  REQUIRE(all.size() == 3);
  CHECK(all[0].row_id == "1");
  CHECK(all[0].seconds == Approx(3e-6));  // of 1, 4 and 4
}

TEST_CASE("rows that cannot be used say why") {
  const auto skip = [](const std::string& row) { return std::get<Skip>(read(read_gemm_row, kGemm + row)); };
  CHECK(skip("1,TPU v4,fp8,2,3,4,5.5,x\n").reason == SkipReason::UnknownDevice);
  CHECK(skip("1,B200,fp8,2,3,4,,x\n").reason == SkipReason::NoMeasurement);
  CHECK(skip("1,B200,int3,2,3,4,1,x\n").reason == SkipReason::UnsupportedPrecision);
  CHECK(skip("1,B200,fp8,2,,4,1,x\n").detail == "n is ''");
  CHECK(skip("1,B200,fp8,2,,4,1,x\n").reason == SkipReason::Incomplete);
}

TEST_CASE("a row without id is known by file and line") {
  const KernelCase c = std::get<KernelCase>(
      read(read_fp32_row, "gpu,op,b,m,n,k,h,latency_ms,torch\nTesla P100-PCIE-16GB,linear,2,3,5,7,,1,2.1.0\n"));
  CHECK(c.row_id == "t:2");
  CHECK(c.works.front() == Work{Gemm{.m = 6, .n = 7, .k = 5, .bias = true, .dtype = DType::F32}});
}

TEST_CASE("a law is less sure beyond its points where a law of the smaller ones misses the larger", "[calibrate]") {
  // Sums of 10 thousand to 2 billion numbers: 2 us and 12 B each at 0.8 TB/s. The fit sees four fifths of them; of
  // these the largest fifth takes `slow` times as long.
  const auto growth = [](double slow) {
    constexpr int kSizes = 200, kSeen = 160;
    std::vector<KernelCase> cases;
    for (int i = 0; i < kSizes; ++i) {
      const auto rows = std::llround(10 * std::pow(1.063, i));
      const double numbers = double(rows) * 1000;
      KernelCase c{.row_id = fmt::format("r{}", i), .gpu = "g", .op = "add", .key = fmt::format("k{}", i)};
      c.works = {Add{.rows = rows, .cols = 1000}};
      c.size = numbers;
      c.seconds = (2e-6 + numbers * 12 / 0.8e12) * (i > kSeen * 4 / 5 ? slow : 1);
      cases.push_back(std::move(c));
    }
    GpuParameters p = testing::bare_gpu();
    p.memory_bandwidth = BytesPerSecond{1e12};
    CHECK(fit_gpu(p, cases, {}) == std::vector<std::string>{"elementwise"});
    return p.laws.at("elementwise").growth;
  };
  const double even = growth(1);
  CHECK(even < 0.03);
  CHECK(growth(1.4) > 3 * even);
}
