// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/topology_import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <pugixml.hpp>

#include "sim/base/source_text.hpp"

namespace orrery {
namespace {

using Xml = pugi::xml_node;

constexpr Seconds kDeviceLatency{1.5e-6}, kCardLatency{4e-6};  // assumed: NCCL's file has none
constexpr std::int64_t kMost = 1 << 20;                        // nodes or devices of an imported machine

/// A document with its text, for places in messages.
class Source {
 public:
  Source(std::string_view text, std::string file) : text_{text}, file_{std::move(file)} {}

  [[noreturn]] void fail(std::ptrdiff_t offset, std::string message, std::string hint) const {
    const std::size_t at = std::min(static_cast<std::size_t>(std::max<std::ptrdiff_t>(offset, 0)), text_.size());
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    const std::size_t start = at == 0 ? std::string_view::npos : text_.rfind('\n', at - 1);
    const std::size_t first = start == std::string_view::npos ? 0 : start + 1;
    throw UserError{Diagnostic{
        std::move(message), std::move(hint), file_, static_cast<int>(line), static_cast<int>(at - first + 1), {}}};
  }
  [[noreturn]] void fail(Xml node, std::string message, std::string hint) const {
    fail(node.offset_debug(), std::move(message), std::move(hint));
  }

  double number(Xml node, const char* name) const {
    const char* text = node.attribute(name).value();
    const auto value = parse_number(text);
    if (!value || !(*value >= 0 && *value <= kMostAmount))
      fail(node, fmt::format("<{} {}=\"{}\"> is not a number", node.name(), name, text), "write digits, such as 25");
    return *value;
  }

  std::int64_t count(Xml node, const char* name) const {
    const double value = number(node, name);
    if (value < 1 || value > double(kMost) || value != std::floor(value))
      fail(node, fmt::format("<{} {}=\"{}\"> is not a count", node.name(), name, node.attribute(name).value()),
           fmt::format("write an integer from 1 to {}", kMost));
    return static_cast<std::int64_t>(value);
  }

  /// What the numbers of a node together mean: a sum or a product of legal ones may be none itself.
  BytesPerSecond bandwidth(Xml node, double bytes_per_second) const {
    if (!(bytes_per_second >= 1 && bytes_per_second <= kMostAmount))
      fail(node,
           fmt::format("the bandwidth of <{}>, {}, is out of range", node.name(),
                       to_text(BytesPerSecond{bytes_per_second})),
           "from 1 B/s to 1e+18 B/s");
    return BytesPerSecond{bytes_per_second};
  }

 private:
  std::string_view text_;
  std::string file_;
};

/// All elements of this name below a node, in order; without recursion, since files may be as deep as they like.
template <class Visit>
void walk(Xml top, std::string_view name, Visit&& visit) {
  Xml node = top;
  while (true) {
    if (const Xml child = node.first_child()) {
      node = child;
    } else {
      while (node != top && !node.next_sibling()) node = node.parent();
      if (node == top) return;
      node = node.next_sibling();
    }
    if (name == node.name()) visit(node);
  }
}

// NCCL

/// GPUs by compute capability, and what one of their NVLinks carries in a direction (data sheets).
struct GpuKind {
  int sm;
  const char* device;
  double nvlink;  // GB/s
};
constexpr GpuKind kGpus[] = {{60, "p100", 20},      {70, "v100", 25},      {75, "rtx_5000", 25},
                             {80, "a100_80g", 25},  {89, "l40s", 0},       {90, "h100_sxm", 25},
                             {100, "b200_sxm", 50}, {103, "b300_sxm", 50}, {120, "rtx_pro_6000", 0}};

/// GB/s of a PCIe lane at a rate in GT/s: 8b/10b below 8 GT/s, 128b/130b from there on.
double lane_rate(double transfers) { return transfers < 8 ? transfers / 10 : transfers / 8 * 128 / 130; }

class NcclImport {
 public:
  NcclImport(const Source& source, Xml system) : source_{source}, system_{system} {}

  Cluster run(const std::string& device) {
    walk(system_, "gpu", [&](Xml gpu) { gpus_.push_back(gpu); });
    if (gpus_.empty())
      source_.fail(system_, "the system has no <gpu>", "dump it with NCCL_TOPO_DUMP_FILE from a run on GPUs");
    Cluster c;
    c.devices_per_node = std::ssize(gpus_);
    const std::int64_t sm = source_.count(gpus_.front(), "sm");
    for (const GpuKind& k : kGpus)
      if (k.sm <= sm) kind_ = k;
    c.device = device.empty() ? kind_.device : device;
    set_host_link(c);
    set_device_link(c);
    set_cards(c);
    c.summary = fmt::format("{} {} of one node, imported from NCCL's topology", c.devices_per_node, c.device);
    return c;
  }

 private:
  static Xml slot_of(Xml gpu) { return gpu.parent(); }

  void set_host_link(Cluster& c) {
    const Xml slot = slot_of(gpus_.front());
    HostLink link;
    const double lanes = slot.attribute("link_width") ? source_.number(slot, "link_width") : 16;
    const std::string speed = slot.attribute("link_speed").value();
    const double transfers = parse_number(speed.substr(0, speed.find(' '))).value_or(8);
    link.bandwidth =
        BytesPerSecond{std::max(lane_rate(std::clamp(transfers, 1.0, 1e3)) * std::clamp(lanes, 1.0, 64.0), 0.01) * 1e9};
    link.name = fmt::format("PCIe x{:.0f} at {:g} GT/s", lanes, transfers);
    link.latency = kDeviceLatency;
    std::map<std::string, std::int64_t> behind;  // by the outermost switch
    for (const Xml gpu : gpus_) {
      Xml outer = slot_of(gpu);
      while (std::string_view{outer.parent().name()} == "pci") outer = outer.parent();
      ++behind[outer.attribute("busid").value()];
    }
    for (const auto& [bus, count] : behind) link.devices_per_switch = std::max(link.devices_per_switch, count);
    c.host_link = link;
  }

  /// To a switch, when a target is of the class of bridges; to each other in pairs or a mesh.
  void set_device_link(Cluster& c) {
    double links = 0;
    std::size_t peers = 0;
    bool to_switch = false;
    for (const Xml link : gpus_.front().children("nvlink")) {
      links += link.attribute("count") ? source_.number(link, "count") : 1;
      to_switch = to_switch || std::string_view{link.attribute("tclass").value()} == "0x068000";
      ++peers;
    }
    Link device{"PCIe", c.host_link->bandwidth, kDeviceLatency, {}};
    c.layout = NodeLayout::Pcie;
    if (links > 0 && kind_.nvlink > 0) {
      const BytesPerSecond all = source_.bandwidth(gpus_.front(), links * kind_.nvlink * 1e9);
      device = {fmt::format("{:g} NVLinks", links), all, kDeviceLatency, {}};
      c.layout = to_switch           ? NodeLayout::Switch
                 : peers == 1        ? NodeLayout::Pairs
                 : gpus_.size() == 8 ? NodeLayout::CubeMesh
                                     : NodeLayout::Switch;
    }
    c.device_link = device;
  }

  /// A card for each GPU where there are as many, else one that is as fast as all together.
  void set_cards(Cluster& c) {
    double sum = 0;
    std::int64_t cards = 0;
    walk(system_, "net", [&](Xml net) {
      sum += source_.number(net, "speed") / 8e3;  // Mb/s to GB/s
      ++cards;
    });
    if (sum <= 0) return;
    const bool each = cards >= c.devices_per_node;
    c.nic = Nic{fmt::format("{} cards", cards),
                each ? NicPlacement::PerDevice : NicPlacement::PerNode,
                source_.bandwidth(system_, sum / double(each ? c.devices_per_node : 1) * 1e9),
                kCardLatency,
                {}};
  }

  const Source& source_;
  Xml system_;
  std::vector<Xml> gpus_;
  GpuKind kind_ = kGpus[0];
};

// SimGrid

struct Suffix {
  std::string_view text;
  double factor;
};

class SimGridImport {
 public:
  SimGridImport(const Source& source, Xml platform) : source_{source}, platform_{platform} {}

  Cluster run(const std::string& device) {
    Cluster c;
    c.device = device.empty() ? "host" : device;
    Xml cluster;
    walk(platform_, "cluster", [&](Xml found) {
      if (!cluster) cluster = found;
    });
    if (cluster)
      from_cluster(c, cluster);
    else
      from_hosts(c);
    c.summary = fmt::format("{} nodes, imported from SimGrid's platform", c.nodes);
    return c;
  }

 private:
  /// "125MBps", "1Gbps" with their prefixes; a bare number is in B/s.
  BytesPerSecond bandwidth(Xml node, const char* name) const {
    static constexpr Suffix kSuffixes[] = {
        {"GiBps", 1073741824.0}, {"MiBps", 1048576.0}, {"KiBps", 1024.0}, {"TBps", 1e12},   {"GBps", 1e9},
        {"MBps", 1e6},           {"kBps", 1e3},        {"Tbps", 1.25e11}, {"Gbps", 1.25e8}, {"Mbps", 1.25e5},
        {"kbps", 125},           {"Bps", 1},           {"bps", 0.125},    {"", 1}};
    return source_.bandwidth(node, quantity(node, name, kSuffixes, "a bandwidth with its unit, such as 125MBps"));
  }

  Seconds latency(Xml node, const char* name) const {
    static constexpr Suffix kSuffixes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"ps", 1e-12}, {"s", 1}, {"", 1}};
    if (!node.attribute(name)) return Seconds{0};
    return Seconds{quantity(node, name, kSuffixes, "a time with its unit, such as 50us")};
  }

  double quantity(Xml node, const char* name, std::span<const Suffix> suffixes, const char* legal) const {
    const std::string_view text = node.attribute(name).value();
    for (const Suffix& s : suffixes) {
      if (!text.ends_with(s.text)) continue;
      if (const auto value = parse_number(text.substr(0, text.size() - s.text.size()));
          value && *value >= 0 && *value * s.factor <= kMostAmount)
        return *value * s.factor;
    }
    source_.fail(node, fmt::format("<{} {}=\"{}\"> cannot be read", node.name(), name, text),
                 fmt::format("write {}", legal));
  }

  std::vector<std::int64_t> numbers(Xml node, std::string_view text) const {
    std::vector<std::int64_t> out;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find_first_of(",;"), text.size());
      const auto value = parse_number(text.substr(0, end));
      if (!value || *value < 0 || *value > double(kMost) || *value != std::floor(*value))
        source_.fail(node,
                     fmt::format("topo_parameters=\"{}\" cannot be read", node.attribute("topo_parameters").value()),
                     "write integers between commas and semicolons");
      out.push_back(static_cast<std::int64_t>(*value));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return out;
  }

  /// How many numbers "0-99,120,200-203" names.
  std::int64_t radical_size(Xml cluster) const {
    std::string_view text = cluster.attribute("radical").value();
    std::int64_t n = 0;
    while (!text.empty()) {
      const std::string_view part = text.substr(0, text.find(','));
      const std::size_t dash = part.find('-');
      const auto first = parse_number(part.substr(0, dash));
      const auto last = dash == std::string_view::npos ? first : parse_number(part.substr(dash + 1));
      if (!first || !last || *last < *first || *first < 0 || *last > double(kMost)) {
        n = 0;
        break;
      }
      n += static_cast<std::int64_t>(*last - *first) + 1;
      text.remove_prefix(std::min(part.size() + 1, text.size()));
    }
    if (n < 1 || n > kMost)
      source_.fail(cluster, fmt::format("radical=\"{}\" names no nodes", cluster.attribute("radical").value()),
                   "write numbers and ranges, such as 0-99");
    return n;
  }

  void from_cluster(Cluster& c, Xml cluster) {
    c.nodes = radical_size(cluster);
    c.nic = Nic{"link", NicPlacement::PerNode, bandwidth(cluster, "bw"), latency(cluster, "lat"), {}};
    const std::string_view topology = cluster.attribute("topology").value();
    const auto p = numbers(cluster, cluster.attribute("topo_parameters").value());
    if (topology == "TORUS") {
      c.network.shape = NetworkShape::Torus;
      c.network.dims = p;
      std::int64_t nodes = 1;
      for (const std::int64_t d : p) nodes *= std::clamp<std::int64_t>(d, 0, kMost), nodes = std::min(nodes, kMost + 1);
      if (nodes != c.nodes)
        source_.fail(cluster, fmt::format("a torus of {} nodes with {} hosts", nodes, c.nodes),
                     "the product of topo_parameters is the number of hosts");
    } else if (topology == "FAT_TREE") {
      set_fat_tree(c, cluster, p);
    } else if (topology == "DRAGONFLY") {
      // groups,links; chassis,links; routers,links; nodes
      if (p.size() != 7 || p[4] < 1 || p[6] < 1 || p[2] < 1)
        source_.fail(cluster, "topo_parameters of a dragonfly", "write groups,links;chassis,links;routers,links;nodes");
      c.network.shape = NetworkShape::Dragonfly;
      c.network.routers_per_group = std::min(p[2] * p[4], kMost), c.network.nodes_per_router = p[6];
      c.network.global_links = std::max<std::int64_t>(1, p[1]);
    } else if (!topology.empty() && topology != "FLAT") {
      source_.fail(cluster, fmt::format("unknown topology '{}'", topology), "known: FLAT, FAT_TREE, DRAGONFLY, TORUS");
    }
  }

  /// levels; down links of each level; up links; parallel links. Upper levels are taken as wide enough.
  void set_fat_tree(Cluster& c, Xml cluster, const std::vector<std::int64_t>& p) {
    if (p.empty() || p[0] < 1 || p.size() != 1 + 3 * static_cast<std::size_t>(p[0]) || p[1] < 1)
      source_.fail(cluster, "topo_parameters of a fat tree", "write levels;down,…;up,…;parallel,…");
    const auto levels = static_cast<std::size_t>(p[0]);
    c.network.shape = NetworkShape::FatTree;
    c.network.nodes_per_leaf = p[1];
    if (levels > 1) {
      const double up = double(p[1 + levels + 1]) * double(p[1 + 2 * levels + 1]);
      c.network.oversubscription = std::max(1.0, double(p[1]) / std::max(1.0, up));
    }
  }

  void from_hosts(Cluster& c) {
    std::int64_t hosts = 0;
    walk(platform_, "host", [&](Xml) { ++hosts; });
    if (hosts == 0 || hosts > kMost)
      source_.fail(platform_, "the platform has no <host> and no <cluster>", fmt::format("give it 1 to {}", kMost));
    c.nodes = hosts;
    std::optional<Nic> slowest;
    walk(platform_, "link", [&](Xml link) {
      const Nic nic{link.attribute("id").value(),
                    NicPlacement::PerNode,
                    bandwidth(link, "bandwidth"),
                    latency(link, "latency"),
                    {}};
      if (!slowest || nic.bandwidth < slowest->bandwidth) slowest = nic;
    });
    if (!slowest && hosts > 1)
      source_.fail(platform_, fmt::format("{} hosts and no <link>", hosts), "add links between them");
    c.nic = slowest;
  }

  const Source& source_;
  Xml platform_;
};

}  // namespace

Cluster import_cluster(std::string_view xml, const std::string& file, const std::string& device) {
  const SourceText readable{xml, file, ReadLimits{}};  // throws where it is not UTF-8: names go into the cluster's file
  const Source source{xml, file};
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(xml.data(), xml.size());
  if (!parsed)
    source.fail(parsed.offset, fmt::format("not XML: {}", parsed.description()),
                "give NCCL's topology or SimGrid's platform");
  const Xml root = document.document_element();
  const std::string_view name = root.name();
  if (name == "system") return NcclImport{source, root}.run(device);
  if (name == "platform") return SimGridImport{source, root}.run(device);
  source.fail(root, fmt::format("<{}> is no machine that is known", name),
              "give NCCL's topology (<system>) or SimGrid's platform (<platform>)");
}

namespace {

/// Takes out what `usual` has too, so that a file says only what is special.
void drop_equal(Node& node, const Node& usual) {
  std::erase_if(node.fields, [&](const auto& field) {
    const Node* other = usual.find(field.first);
    return other != nullptr && to_yaml(*other) == to_yaml(field.second);
  });
}

}  // namespace

std::string cluster_file(const Cluster& cluster) {
  Node node = write_options(cluster);
  drop_equal(node, write_options(Cluster{}));
  for (auto& [key, value] : node.fields) {
    if (key == "network") drop_equal(value, write_options(NetworkSpec{}));
    std::erase_if(value.fields,
                  [](const auto& field) { return field.first == "fabric" && field.second.scalar.empty(); });
  }
  return "# SPDX-License-Identifier: Apache-2.0\n" + to_yaml(node);
}

}  // namespace orrery
