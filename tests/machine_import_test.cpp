// SPDX-License-Identifier: Apache-2.0
// Clusters from the XML of NCCL and SimGrid.
#include <catch2/catch.hpp>

#include "sim/machine/topology_import.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::literals;

namespace {

/// Two GPUs of compute capability 8.0 behind one PCIe 4 switch, twelve links each to a switch, and a 200 Gb/s card.
constexpr const char* kNccl = R"(<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:07:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="80" rank="0"><nvlink target="0000:c8:00.0" count="12" tclass="0x068000"/></gpu>
      </pci>
      <pci busid="0000:0a:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="80" rank="1"><nvlink target="0000:c8:00.0" count="12" tclass="0x068000"/></gpu>
      </pci>
      <pci busid="0000:0c:00.0" class="0x020700"><nic><net name="mlx5_0" dev="0" speed="200000" port="1"/></nic></pci>
    </pci>
  </cpu>
</system>
)";

Cluster import(const std::string& xml) { return import_cluster(xml, "m.xml", ""); }
std::string error_of(const std::string& xml) {
  return user_error([&] { import(xml); });
}

}  // namespace

TEST_CASE("NCCL's topology gives a node with its links", "[machine][import]") {
  const Cluster c = import(kNccl);
  CHECK(c.device == "a100_80g");
  CHECK(c.devices_per_node == 2);
  CHECK(c.layout == NodeLayout::Switch);
  CHECK(c.device_link->bandwidth.base() == Approx(300e9));  // 12 · 25 GB/s
  // 16 lanes of 16 GT/s, 128 of 130 bits: 16 · 16/8 · 128/130 = 31.5 GB/s.
  CHECK(c.host_link->bandwidth.base() == Approx(31.508e9).epsilon(1e-4));
  CHECK(c.host_link->devices_per_switch == 2);
  CHECK(c.nic->per == NicPlacement::PerNode);
  CHECK(c.nic->bandwidth.base() == Approx(25e9));
}

TEST_CASE("numbers of NCCL's topology that no machine has are refused", "[machine][import]") {
  const auto with_sm = [](const std::string& sm) {
    return R"(<system version="1"><cpu><pci busid="1"><gpu dev="0" sm=")" + sm + R"("/></pci></cpu></system>)";
  };
  for (const char* sm : {"8e66", "8.5", "0", "-80", "nan", "inf"})
    CHECK(error_of(with_sm(sm)).find("is not a") != std::string::npos);
  CHECK(error_of(
            R"(<system version="1"><cpu><pci busid="1" link_width="1e300"><gpu dev="0" sm="80"/></pci></cpu></system>)")
            .find("is not a number") != std::string::npos);
  CHECK(error_of(R"(<platform version="4"><cluster id="c" radical="0-15" bw="1e300GBps" lat="1us"/></platform>)")
            .find("cannot be read") != std::string::npos);
}

TEST_CASE("bandwidths that no machine has are refused, those too that follow from legal numbers", "[machine][import]") {
  const auto gpu = [](const std::string& links, const std::string& speed) {
    return "<system><cpu><pci>\n<gpu sm=\"80\"><nvlink count=\"" + links + "\"/></gpu></pci>\n<net speed=\"" + speed +
           "\"/></cpu></system>";
  };
  CHECK(import(gpu("40000000", "8e12")).nic->bandwidth.base() == Approx(1e18));
  CHECK_THAT(error_of(gpu("100000000", "1000")),
             Catch::StartsWith("m.xml:2:") && Catch::Contains("the bandwidth of <gpu>, 2500 PB/s, is out of range"));
  CHECK_THAT(error_of(gpu("12", "1e13")), Catch::Contains("the bandwidth of <system>, 1250 PB/s, is out of range"));
  CHECK_THAT(error_of(gpu("12", "1e-300")), Catch::Contains("from 1 B/s to 1e+18 B/s"));
  CHECK_THAT(error_of("<platform><cluster radical=\"0-3\" bw=\"0\"/></platform>"),
             Catch::Contains("the bandwidth of <cluster>, 0 B/s, is out of range"));
  CHECK_THAT(error_of("<platform><host/><host/><link bandwidth=\"0\"/></platform>"),
             Catch::Contains("the bandwidth of <link>, 0 B/s, is out of range"));
}

TEST_CASE("without NVLink the GPUs of NCCL's topology talk over PCIe", "[machine][import]") {
  const Cluster c = import(R"(<system version="1"><cpu><pci busid="1" link_speed="8 GT/s" link_width="16">
    <gpu dev="0" sm="75"/></pci></cpu></system>)");
  CHECK(c.layout == NodeLayout::Pcie);
  CHECK(c.device == "rtx_5000");
  CHECK_FALSE(c.nic.has_value());
}

TEST_CASE("SimGrid's cluster gives nodes, links and their shape", "[machine][import]") {
  const Cluster c = import(R"(<?xml version='1.0'?><platform version="4.1"><zone id="w" routing="Full">
    <cluster id="c" prefix="n" suffix="" radical="0-11" speed="1Gf" bw="125MBps" lat="50us" topology="TORUS"
             topo_parameters="4,3"/></zone></platform>)");
  CHECK(c.nodes == 12);
  CHECK(c.nic->bandwidth.base() == Approx(125e6));
  CHECK(c.nic->latency.base() == Approx(50e-6));
  CHECK(c.network.dims == std::vector<std::int64_t>{4, 3});
}

TEST_CASE("SimGrid's fat tree is oversubscribed by its links up", "[machine][import]") {
  // 2 levels: 4 nodes per leaf, 2 switches above each leaf by 1 link: 4 down, 2 up.
  const Cluster c = import(R"(<platform version="4"><cluster id="c" radical="0-15" speed="1Gf" bw="10Gbps" lat="1us"
    topology="FAT_TREE" topo_parameters="2;4,4;1,2;1,1"/></platform>)");
  CHECK(c.network.shape == NetworkShape::FatTree);
  CHECK(c.network.nodes_per_leaf == 4);
  CHECK(c.network.oversubscription == Approx(2.0));
  CHECK(c.nic->bandwidth.base() == Approx(1.25e9));
}

TEST_CASE("hosts and links of a SimGrid zone are nodes with cards of the slowest link", "[machine][import]") {
  const Cluster c = import(R"(<platform version="4.1"><zone id="z" routing="Full"><host id="a" speed="1Gf"/>
    <host id="b" speed="1Gf"/><link id="l" bandwidth="1GBps" latency="2us"/><link id="m" bandwidth="4GBps"
    latency="1us"/></zone></platform>)");
  CHECK(c.nodes == 2);
  CHECK(c.nic->name == "l");
}

TEST_CASE("an imported cluster reads back from its file", "[machine][import]") {
  const Cluster c = import(kNccl);
  const Cluster again = read_cluster(parse_yaml(cluster_file(c), "c.yaml"), "c");
  CHECK(again.device_link->bandwidth == c.device_link->bandwidth);
  CHECK(again.host_link->devices_per_switch == 2);
  CHECK(again.summary == c.summary);
}

TEST_CASE("what is wrong with a file is told once, with its place", "[machine][import][error]") {
  CHECK_THAT(error_of("<system><cpu></system>"), Catch::StartsWith("m.xml:1:") && Catch::Contains("not XML"));
  CHECK_THAT(error_of("<graph/>"), Catch::Contains("<graph> is no machine that is known"));
  CHECK_THAT(error_of("<system version=\"1\"/>"), Catch::Contains("the system has no <gpu>"));
  CHECK_THAT(error_of("<system>\n<pci><gpu sm=\"x\"/></pci></system>"),
             Catch::StartsWith("m.xml:2:") && Catch::Contains("<gpu sm=\"x\"> is not a number"));
  CHECK_THAT(error_of("<platform><cluster radical=\"9-1\" bw=\"1GBps\"/></platform>"),
             Catch::Contains("radical=\"9-1\" names no nodes"));
  CHECK_THAT(error_of("<platform><cluster radical=\"0-3\" bw=\"fast\"/></platform>"),
             Catch::Contains("write a bandwidth with its unit, such as 125MBps"));
  CHECK_THAT(error_of("<platform/>"), Catch::Contains("no <host> and no <cluster>"));
  CHECK_THAT(error_of(""), Catch::Contains("not XML"));
}

TEST_CASE("bytes that are no text are refused where they stand", "[machine][import]") {
  CHECK_THAT(error_of("<platform version=\"4.1\"><zone id=\"z\xb8\" routing=\"Full\"/></platform>"),
             Catch::StartsWith("m.xml:1:") && Catch::Contains("is not text"));
}
