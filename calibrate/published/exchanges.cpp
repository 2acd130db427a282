// SPDX-License-Identifier: Apache-2.0
#include "calibrate/published/exchanges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "calibrate/published/kernels.hpp"
#include "calibrate/statistics.hpp"
#include "hw_models/fabric_model.hpp"

namespace orrery {
namespace {

/// The first rule that fits names the fabric. Empty texts fit all.
struct FabricRule {
  bool is_between;
  std::string_view gpu, interconnect, fabric;
};
constexpr FabricRule kRules[] = {
    {false, "L40S", "", "pcie_4"},
    {false, "RTX PRO", "", "pcie_5"},
    {false, "A100", "pairwise", "nvlink_3_pairs"},
    {false, "H100", "pairwise", "nvlink_4_pairs"},
    {false, "A100", "PCIe", "pcie_4"},
    {false, "H100", "PCIe", "pcie_5"},
    {false, "V100", "", "nvlink_2_mesh"},
    {false, "A100", "", "nvlink_3"},
    {false, "A800", "", "nvlink_3_a800"},
    {false, "H100", "", "nvlink_4"},
    {false, "H200", "", "nvlink_4"},
    {false, "H800", "", "nvlink_4_h800"},
    {false, "GH200", "", "nvlink_4"},
    {false, "B200", "", "nvlink_5"},
    {false, "B300", "", "nvlink_5"},
    {false, "MI3", "", "infinity_fabric"},
    {true, "A100", "EFA", "efa_400g"},
    {true, "H100", "EFA", "efa_3200g"},
    {true, "H200", "EFA", "efa_3200g"},
    {true, "", "EFA", "efa_3200g"},
    {true, "", "2 GPUs per node, InfiniBand", "infiniband_2x2"},
    {true, "GH200", "", "slingshot_11"},
    {true, "", "Slingshot", "slingshot_11"},
    {true, "A100", "pairwise", "pairs_a100_two_nodes"},
    {true, "H100", "pairwise", "pairs_h100_two_nodes"},
    {true, "A100", "used per node", "ethernet_100g_a100"},
    {true, "H100", "used per node", "dgx_h100_two_nodes"},
    {true, "A100", "RoCE", "roce_200g"},
    {true, "A100", "4 x 100 Gb/s", "efa_400g"},
    {true, "A100", "", "infiniband_hdr"},
    {true, "8-GPU node", "busbw about 92", "infiniband_100g"},
    {true, "V100", "", "infiniband_edr"},
    {true, "B", "", "infiniband_ndr"},
    {true, "H", "", "infiniband_ndr"},
    {true, "MI3", "", "infiniband_ndr"},
};

bool contains(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

std::optional<Exchange> exchange_named(std::string_view op) {
  if (op == "all_to_all") op = "alltoall";
  if (op == "sendrecv") op = "send_recv";
  for (const EnumName<Exchange>& e : enum_names(Exchange{}))
    if (e.name == op) return e.value;
  return {};
}

std::string software_of(std::string_view method) {
  if (contains(method, "torch.distributed")) return "torch";
  if (contains(method, "TensorRT-LLM")) return "tensorrt_llm";
  return "nccl";
}

std::optional<double> seconds_of(const CsvRow& row, const ExchangeSample& s) {
  if (const auto us = row.number("latency_us"); us && *us > 0) return *us * 1e-6;
  const auto bus = row.number("busbw_GBps");
  if (!bus || *bus <= 0 || row["notes"].find("factor conventions") != std::string_view::npos) return {};
  return s.bytes.base() * bus_factor(s.op, s.ranks) / (*bus * 1e9);
}

/// Whether a row names a network between nodes.
bool leaves_node(const CsvRow& row) {
  for (const std::string_view network : {"EFA", "InfiniBand", "RoCE", "Ethernet", "Slingshot"})
    if (contains(row["interconnect"], network)) return true;
  return false;
}

constexpr double kSmall = 8192;

}  // namespace

std::string PublishedExchange::key() const {
  return fmt::format("{} {} {} {} {} {} {}", gpu, fabric, static_cast<int>(sample.op), sample.software, sample.ranks,
                     sample.nodes, sample.bytes.base());
}

std::string exchange_label(std::string_view op, Bytes bytes) {
  return fmt::format("{} {}", op, bytes < Bytes{65536} ? "below 64 KiB" : "64 KiB and more");
}

std::string fabric_of(std::string_view gpu, std::string_view interconnect, std::int64_t nodes) {
  for (const FabricRule& r : kRules)
    if (r.is_between == (nodes > 1) && contains(gpu, r.gpu) && contains(interconnect, r.interconnect))
      return std::string{r.fabric};
  return {};
}

ExchangeRow read_exchange_row(const CsvRow& row) {
  PublishedExchange x{.row_id = id_of(row), .gpu = std::string{row["gpu"]}, .source = std::string{row["source"]}};
  const auto op = exchange_named(row["op"]);
  if (!op) return Skip{SkipReason::UnsupportedOp, std::string{row["op"]}};
  const auto ranks = row.integer("n_gpus");
  const std::int64_t nodes = row.integer("n_nodes").value_or(leaves_node(row) ? 0 : 1);
  const auto bytes = row.number("message_bytes");
  if (!ranks || *ranks < 2 || !bytes || *bytes <= 0) return Skip{SkipReason::Incomplete, "n_gpus or message_bytes"};
  if (nodes < 1 || nodes > *ranks) return Skip{SkipReason::Incomplete, "n_nodes"};
  x.sample.op = *op;
  x.sample.software = software_of(row["method"]);
  x.sample.ranks = *ranks, x.sample.nodes = nodes, x.sample.bytes = Bytes{*bytes};
  const auto seconds = seconds_of(row, x.sample);
  if (!seconds) return Skip{SkipReason::NoMeasurement, "latency_us"};
  x.sample.measured = Seconds{*seconds};
  x.fabric = fabric_of(x.gpu, row["interconnect"], x.sample.nodes);
  if (x.fabric.empty()) return Skip{SkipReason::UnknownDevice, x.gpu};
  return x;
}

FabricParameters fit_fabric(FabricParameters p, const std::vector<ExchangeSample>& samples) {
  p.curves = fit_exchanges(samples, p.bus);
  std::vector<double> latencies;
  p.latency_factor = 1;
  const FabricModel model{p};
  for (const ExchangeSample& s : samples)
    if (s.bytes.base() <= kSmall && s.software == "nccl")
      latencies.push_back(s.measured /
                          nccl_choice(kind_of(s.op), s.bytes, model.system(s.ranks, s.nodes, p.bus * 4.0)).latency);
  if (!latencies.empty()) p.latency_factor = median(latencies);
  return p;
}

}  // namespace orrery
