// SPDX-License-Identifier: Apache-2.0
// PatrickStar, Fang and others, arXiv 2108.05818 and IEEE TPDS 34(1): networks on nodes with 8 A100 of 40 GB, and on
// one with 8 V100 of 32 GB and 240 GB. Paper: the labels of one_node_perf_a100.png and mgpu_scalability.png in doc/ of
// its repository (version 0.4.6), and m_node_superpod.png, read off. From its code: layers and widths; they are those
// of a BertForSequenceClassification, without logits (examples/model_builder.py; 20 billion have the 20.46 that its log
// in pull request 269 counts); 1,024 tokens; every block runs again to its end, as torch.utils.checkpoint does; 0.8 of
// each memory is used; chunks have the size that its search takes, with what layers leave empty of them, and during
// updates 16 bytes of a device per element of a chunk stay free (memtracer.py). Moments have no memory before the first
// update (chunk_list.py, `new_chunk`), so that this is when all chunks have to fit. Chunks are sent around one by one,
// before the first use in a pass and, as gradients, behind the last one (client.py, `with_mem_saving_comm`, which its
// scripts set). What PyTorch's allocator takes, which its benchmarks empty before each step, has to fit into what
// nvidia-smi shows of a device (40,536 and 32,510 MiB then), less what PyTorch does not have of it (context, kernels,
// NCCL): its messages of 2021 and 2022 when memory was short tell that. The nodes with A100 have 1007 GiB: logs of pull
// requests 248, 249 and 269 print what is used, and what part of all that is. Batches are those of sweeps, 32, 16 and 8
// per GPU on V100 (benchmark_yard_v2.sh), 16, 8 and 4 on A100 from 20 billion on (run_a100_benchmark_*.sh): the best
// that fits is taken, for smaller networks on A100 of 32 too. Chunks of A100 are those of the search or of these
// scripts, 256 and 384 Mi elements, whichever is faster, as its process_logs.py takes the best of all logs. Where 25
// bytes of the host for each element of all chunks are more than it has, sweeps did not come to an end: so many are
// used in the log of pull request 269 (715 GiB of 20 billion). TFLOPS count 8 per parameter and token. Assumed: links
// and memory rates of the vendors' data sheets, two GPUs behind each PCIe switch, one 200 Gb/s card for each A100;
// attention op by op as BertSelfAttention has it (transformers 4), dropped as BertConfig says (0.1), and with masks of
// a byte for each number that may be dropped, as PyTorch ran it then; ranks that update on one host together as its
// author measured on A100 for Elixir (hpcaitech/Elixir, profile/): n reach 1 + 0.32·ln n times what one does. Chunks
// have owners, who bring them up and broadcast them one after another, as there. The buffer that master copies come
// back through stays on the device beside what chunks may have (ops/fp16_cpu_adam.py), as without the memory cache,
// which the sweeps of A100 ran with and without, and those of V100 did not know. Several ranks keep no chunk of room
// free, as gradients lie beside the gathered chunk here until they are summed, there in its place. Bars of one, two and
// four V100 have labels of two decimals and end with 12 billion, where release 0.3 ended (its README); those of eight
// have whole numbers and go on to the 18 of 0.4.3. The former are taken for runs of 0.3: its tracer looks at memory
// when weights are asked for, and keeps 1.5 and 2 times what it saw free of chunks (patrickstar/manager/manager.py,
// `available_chunk_mem`); chunks of all ranks are gathered at once, as memory-saving communication came with 0.4.3, and
// sizes of chunks are swept, as the search came with 0.4.5 (CHANGE_LOG.md): 32, 48, 64 and 128 Mi elements in
// run_benchmark.sh and run_benchmark_large.sh, and the next of these steps where nothing fits in those, as 12 billion
// do on one and two. Calibrated, on the rows of each machine that say so (the host's rate of V100 as it was when those
// of 0.3 were not told apart): the rate of products, and that of copies and updates on the host.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/app/reproduce/training.hpp"
#include "sim/base/parallel.hpp"

namespace orrery::papers::patrickstar {
namespace {

constexpr std::int64_t kMi = 1 << 20;
constexpr std::int64_t kTokens = 1024, kVocabulary = 30522;
constexpr double kWithin = 0.2, kExact = 0.01;
constexpr std::int64_t kUpdateReserve = 16;        // bytes per element of a chunk, kept free during updates
constexpr double kSweptHost = 25;                  // bytes of the host per element of all chunks
constexpr double kCopies = 0.83, kUpdates = 0.46;  // parts of their rates that copies and updates reach elsewhere

constexpr GptSize kSizes[] = {{1, 20, 2048},   {2, 40, 2048},       {4, 64, 2304},  {6, 53, 3072},  {8, 72, 3072},
                              {10, 50, 4096},  {12, 60, 4096},      {15, 78, 4096}, {18, 90, 4096}, {20, 25, 8192},
                              {30, 37, 8192},  {40, 50, 8192},      {50, 62, 8192}, {60, 75, 8192}, {68, 66, 9216},
                              {76, 60, 10240}, {175, 96, 12288, 96}};
/// As the `model:` of a scenario: the benchmarks train a BertForSequenceClassification, so that there are no logits.
std::string model_of(const GptSize& s) {
  return fmt::format(
      "{{model_type: bert, architectures: [BertModel], hidden_size: {}, intermediate_size: {}, num_hidden_layers: {}, "
      "num_attention_heads: {}, vocab_size: {}, max_position_embeddings: {}}}",
      s.hidden, 4 * s.hidden, s.layers, s.heads, kVocabulary, kTokens);
}
double parameters_of(const GptSize& s) {
  const auto h = double(s.hidden);
  return 12 * double(s.layers) * h * h + double(kVocabulary + kTokens + 2) * h + h * h;
}

const GptSize& size_of(double billions) {
  return *std::find_if(std::begin(kSizes), std::end(kSizes), [&](const GptSize& s) { return s.billions == billions; });
}

/// Elements of a network's layers as the reference's PSPreProcessCtx takes them: weight and bias of a layer stay
/// together, in the order of construction.
std::vector<std::int64_t> layers_of(const GptSize& s) {
  const std::int64_t h = s.hidden;
  std::vector<std::int64_t> out{kVocabulary * h, kTokens * h, 2 * h, 2 * h};
  for (std::int64_t l = 0; l < s.layers; ++l)
    for (const std::int64_t n :
         {h * h + h, h * h + h, h * h + h, h * h + h, 2 * h, 4 * h * h + 4 * h, 4 * h * h + h, 2 * h})
      out.push_back(n);
  out.insert(out.end(), {h * h + h, 2 * h + 2});
  return out;
}

/// Chunks of so many elements that these layers take.
std::int64_t chunks_taken(const std::vector<std::int64_t>& layers, std::int64_t elements) {
  std::int64_t chunks = 0, left = 0;
  for (const std::int64_t n : layers) {
    if (n > left) ++chunks, left = elements;
    left -= n;
  }
  return chunks;
}

bool holds(std::int64_t elements, const std::vector<std::int64_t>& layers) {
  return elements >= *std::max_element(layers.begin(), layers.end());
}

/// Elements of the chunk that the reference's search (CS_SEARCH of run_transformers.sh) takes: of 312, 280, … 88 Mi, as
/// far as they hold all layers, the one that leaves least empty, the largest where equal; where none does, the next
/// size of the same steps that does.
std::int64_t searched_chunk(const std::vector<std::int64_t>& layers) {
  constexpr std::int64_t kLeast = 88 * kMi, kStep = 32 * kMi;
  std::int64_t n = 312 * kMi;
  while (!holds(n, layers)) n += kStep;
  std::int64_t best = n;
  for (; n >= kLeast && holds(n, layers); n -= kStep)
    if (n * chunks_taken(layers, n) < best * chunks_taken(layers, best)) best = n;
  return best;
}

/// Elements of chunks of the first release, which has no search yet: those that its benchmarks sweep
/// (run_benchmark.sh, run_benchmark_large.sh), and the next of the same steps where nothing fits in these.
std::vector<std::vector<std::int64_t>> first_chunks(const std::vector<std::int64_t>& layers) {
  std::vector<std::vector<std::int64_t>> out(1);
  for (const std::int64_t n : {32, 48, 64, 128})
    if (holds(n * kMi, layers)) out[0].push_back(n * kMi);
  for (const std::int64_t n : {192, 256, 320})
    if (holds(n * kMi, layers)) out.push_back({n * kMi});
  return out;
}

/// Part of the host's memory rate that updates of so many ranks of a node reach together.
double updates_reached(std::int64_t ranks) { return kUpdates * (1 + 0.32 * std::log(double(ranks))); }

/// A row of a figure: total TFLOPS by billions of parameters.
struct Row {
  std::int64_t gpus;
  std::vector<std::pair<double, double>> published;
};
struct Site {
  const char *name, *device, *links, *layout;            // layout: of all devices of a node
  double pcie, device_bytes, shown_bytes, host_bytes;    // shown: by nvidia-smi
  double outside, outside_of_many;                       // of PyTorch's allocator: one rank, several
  double products, host;                                 // calibrated: parts of the rates that our laws give
  std::vector<std::int64_t> batches;                     // per GPU, most first
  std::vector<std::int64_t> swept;                       // elements of chunks, beside what the search takes
  std::vector<std::pair<std::int64_t, double>> largest;  // billions of parameters by GPUs
  std::vector<Row> rows;
  std::vector<std::pair<std::int64_t, double>> calibrated;  // GPUs and billions of the rows that they were set on
  std::int64_t first_release;                               // rows of up to so many GPUs are of it
  const char* source;
};

Site a100() {
  return {
      .name = "A100",
      .device = "a100_40g",
      .links =
          "device_link: {bandwidth: 300 GB/s, latency: 1.5 us, fabric: nvlink_3}, nic: {per: device, "
          "bandwidth: 200 Gb/s, latency: 4 us, fabric: infiniband_hdr}",
      .layout = "switch",
      .pcie = 31.5,
      .device_bytes = 40 * kGiB,
      .shown_bytes = 40536 * kMiB,
      .host_bytes = 1007 * kGiB,
      .outside = 2.04 * kGiB,
      .outside_of_many = 2.77 * kGiB,
      .products = 0.685,
      .host = 0.662,
      .batches = {32, 16, 8, 4},
      .swept = {256 * kMi, 384 * kMi},
      .largest = {{1, 50}, {2, 50}, {4, 60}, {8, 68}},
      .rows =
          {{1, {{6, 114}, {10, 118}, {15, 113}, {20, 93}, {30, 57}, {40, 56}, {50, 67}}},
           {2, {{6, 237}, {10, 266}, {15, 210}, {20, 167}, {30, 137}, {40, 137}, {50, 134}}},
           {4, {{6, 534}, {10, 587}, {15, 519}, {20, 585}, {30, 524}, {40, 367}, {50, 368}, {60, 333}}},
           {8,
            {{6, 1180}, {10, 1218}, {15, 1134}, {20, 1231}, {30, 1132}, {40, 1109}, {50, 952}, {60, 920}, {68, 857}}},
           {16, {{20, 2850}, {40, 2800}, {60, 2100}}},
           {32, {{20, 6080}, {40, 6070}, {60, 4100}, {175, 3500}}},
           {64, {{20, 11600}, {40, 11900}, {60, 11800}, {175, 8100}}}},
      .calibrated = {{4, 15}, {4, 60}},
      .first_release = 0,
      .source = "repository of PatrickStar, one_node_perf_a100.png, m_node_superpod.png"};
}

Site v100() {
  return {.name = "V100",
          .device = "v100",
          .links = "device_link: {bandwidth: 150 GB/s, latency: 1.8 us, fabric: nvlink_2_mesh}",
          .layout = "cube_mesh",
          .pcie = 15.75,
          .device_bytes = 32 * kGiB,
          .shown_bytes = 32510 * kMiB,
          .host_bytes = 240e9,
          .outside = 1.2 * kGiB,
          .outside_of_many = 1.35 * kGiB,
          .products = 0.678,
          .host = 0.97,
          .batches = {32, 16, 8},
          .swept = {},
          .largest = {{1, 12}, {2, 12}, {4, 12}, {8, 18}},
          .rows = {{1, {{1, 54.6}, {2, 50.57}, {4, 48.39}, {6, 46.31}, {8, 42.24}, {10, 45.69}, {12, 33.78}}},
                   {2, {{1, 107.46}, {2, 100.21}, {4, 93.91}, {6, 103.51}, {8, 83.92}, {10, 86.54}, {12, 75.52}}},
                   {4, {{1, 221.74}, {2, 212.31}, {4, 208.49}, {6, 232.94}, {8, 211.96}, {10, 237.25}, {12, 224.59}}},
                   {8, {{1, 444}, {2, 425}, {4, 426}, {6, 482}, {8, 467}, {10, 494}, {12, 482}, {15, 465}, {18, 419}}}},
          .calibrated = {{8, 2}, {4, 12}},
          .first_release = 4,
          .source = "repository of PatrickStar, mgpu_scalability.png"};
}

struct Inputs {
  std::string name;
  double usable = 0.8;
  bool hybrid = true, calibrated = true;
  bool searched = true;            // chunks as the reference's search lays them out
  bool swept = true;               // and of the sizes of its scripts
  bool holes = true;               // of PyTorch's allocator
  bool write_buffer = true;        // stays on the device
  bool dropped_scores = true;      // and masks
  bool eager = true;               // attention
  bool releases = true;            // the first one where it was run
  std::int64_t most_samples = 32;  // per GPU
};

class Machines {
 public:
  Machines(const Reproducer& r, const Inputs& in) : r_{r}, in_{in} {}

  /// TFLOPS of all GPUs, with the batch and the size of chunks that give most; 0 where nothing fits.
  double best_speed(const Site& site, std::int64_t gpus, const GptSize& size) const {
    std::vector<std::int64_t> batches;
    for (const std::int64_t batch : site.batches)
      if (batch <= in_.most_samples && (batch <= 16 || size.billions < 20)) batches.push_back(batch);
    return best_speed(site, gpus, size, batches);
  }

  /// Billions of parameters of the largest size that fits with the smallest batch; memory grows with the size.
  double largest(const Site& site, std::int64_t gpus) const {
    const auto fits = [&](const GptSize& size) { return best_speed(site, gpus, size, {site.batches.back()}) > 0; };
    const GptSize* bad = std::partition_point(std::begin(kSizes), std::end(kSizes), fits);
    return bad == std::begin(kSizes) ? 0 : (bad - 1)->billions;
  }

 private:
  double best_speed(const Site& site, std::int64_t gpus, const GptSize& size,
                    const std::vector<std::int64_t>& batches) const {
    double best = 0;
    for (const std::vector<std::int64_t>& sizes : chunks(site, gpus, size)) {
      if (best > 0) break;
      for (const std::int64_t batch : batches)
        for (const std::int64_t chunk : sizes) best = std::max(best, speed(site, gpus, size, batch, chunk).value_or(0));
    }
    return best;
  }

  bool is_first_release(const Site& site, std::int64_t gpus) const {
    return in_.releases && gpus <= site.first_release;
  }

  /// Sizes that are tried, as elements of a chunk, those of a list only where nothing fits in those before; 0: what
  /// leaves no gaps.
  std::vector<std::vector<std::int64_t>> chunks(const Site& site, std::int64_t gpus, const GptSize& size) const {
    if (!in_.searched) return {{0}};
    const std::vector<std::int64_t> layers = layers_of(size);
    if (is_first_release(site, gpus)) return first_chunks(layers);
    std::vector<std::int64_t> sizes{searched_chunk(layers)};
    if (in_.swept)
      for (const std::int64_t n : site.swept)
        if (holds(n, layers) && kSweptHost * double(n * chunks_taken(layers, n)) <= site.host_bytes) sizes.push_back(n);
    return {sizes};
  }

  /// Nothing where so many samples on each GPU do not fit.
  std::optional<double> speed(const Site& site, std::int64_t gpus, const GptSize& size, std::int64_t batch,
                              std::int64_t chunk) const {
    const auto report =
        fitting_step(r_, scenario(site, gpus, size, batch, chunk), {{"gemm.rate", in_.calibrated ? site.products : 1}});
    if (!report) return {};
    return teraflops_of(parameters_of(size), double(batch * gpus * kTokens), report->step);
  }

  /// Memory-saving communication came with 0.4.3: chunks of all ranks are gathered at once before.
  std::string mesh(const Site& site, std::int64_t gpus, std::int64_t chunk) const {
    if (gpus == 1) return "";
    const bool first = is_first_release(site, gpus);
    const std::string parts =
        chunk > 0 ? fmt::format("bucket: 1000000000000, part: {}, owners: {}", chunk * (first ? gpus : 1), !first)
                  : "bucket: 0";  // of one bucket of all blocks
    return fmt::format("parallel: {{mesh: dp{}, data: {{kind: zero3, prefetch: 0, {}}}}}, ", gpus, parts);
  }

  std::string options(const Site& site, std::int64_t gpus, std::int64_t chunk) const {
    const std::int64_t per_node = std::min<std::int64_t>(gpus, 8);
    return fmt::format(
        "chunk: {}, update_reserve: {} B, device_memory: {:.0f} B, host_memory: {:.0f} B, usable: {}, reserve: {}, "
        "hybrid: {}, write_buffer: {}, tracer: {}",
        chunk, kUpdateReserve * chunk, site.device_bytes, site.host_bytes / double(per_node), in_.usable,
        gpus > 1 ? 0 : 1, in_.hybrid, in_.write_buffer ? "beside" : "none",
        is_first_release(site, gpus) ? "moments" : "exact");
  }

  std::string scenario(const Site& site, std::int64_t gpus, const GptSize& size, std::int64_t batch,
                       std::int64_t chunk) const {
    const std::int64_t nodes = (gpus + 7) / 8, per_node = gpus / nodes;
    const double host = in_.calibrated ? site.host : 1;
    return fmt::format(
        "model: {}\n"
        "cluster: {{nodes: {}, devices_per_node: {}, device: {}, device_memory: {:.0f} B, layout: {}, {}, host_link: "
        "{{bandwidth: {} GB/s, latency: 1.5 us, devices_per_switch: 2, to_device: {}, to_host: {}}}, host: {{cores: "
        "64, memory: {:.0f} B, "
        "memory_bandwidth: 300 GB/s, reached: {}}}}}\n"
        "strategy: [{{patrickstar: {{{}{}}}}}]\n"
        "workload: {{train: {{batch: {}, sequence: {}, dtype: f16, recompute: whole, stored_scores: true, "
        "eager_attention: {}, dropout: 0.1, {}optimizer: {{clip: 0}}}}}}\n"
        "memory: {{allocator: {}}}\n",
        model_of(size), nodes, per_node, site.device,
        site.shown_bytes - (gpus > 1 ? site.outside_of_many : site.outside), per_node == 8 ? site.layout : "switch",
        site.links, site.pcie, kCopies * host, kCopies * host, site.host_bytes, updates_reached(per_node) * host,
        mesh(site, gpus, chunk), options(site, gpus, chunk), batch * gpus, kTokens, in_.eager,
        in_.dropped_scores ? "attention_dropout: 0.1, dropout_masks: true, " : "", in_.holes ? "pytorch" : "best-fit");
  }

  const Reproducer& r_;
  const Inputs& in_;
};

/// A value that is asked for: the largest size where `billions` is 0, else a speed.
struct Question {
  const Site* site;
  std::int64_t gpus;
  double billions, paper = 0;
};

std::vector<Question> questions(const Site& site) {
  std::vector<Question> out;
  for (const auto& [gpus, billions] : site.largest) out.push_back({&site, gpus, 0, billions});
  for (const Row& row : site.rows)
    for (const auto& [billions, paper] : row.published) out.push_back({&site, row.gpus, billions, paper});
  return out;
}

double answer(const Reproducer& r, const Inputs& in, const Question& q) {
  const Machines machines{r, in};
  return q.billions == 0 ? machines.largest(*q.site, q.gpus)
                         : machines.best_speed(*q.site, q.gpus, size_of(q.billions));
}

Claim claim_of(const Question& q, double ours) {
  Claim c{fmt::format("largest on {} {}", q.gpus, q.site->name), q.site->source, q.paper, ours, "billion", kExact, ""};
  if (q.billions == 0) return c;
  c.name = fmt::format("{:g} billion on {} {}", q.billions, q.gpus, q.site->name);
  c.unit = "TFLOPS", c.within = kWithin, c.note = q.gpus > 8 ? "read off a figure" : "";
  c.calibrated = std::ranges::count(q.site->calibrated, std::pair{q.gpus, q.billions}) > 0;
  return c;
}

/// What the claims owe to each input.
void add_ablations(const Reproducer& r, const std::vector<Question>& asked, Reproduction& out) {
  const Inputs rows[] = {{.name = "as stated"},
                         {.name = "all of each memory", .usable = 1},
                         {.name = "chunks without gaps", .searched = false},
                         {.name = "chunks of the search alone", .swept = false},
                         {.name = "an allocator without holes", .holes = false},
                         {.name = "no room kept for master copies", .write_buffer = false},
                         {.name = "no dropout of scores, no masks", .dropped_scores = false},
                         {.name = "scores in place, as they were", .eager = false},
                         {.name = "release 0.4.3 for all", .releases = false},
                         {.name = "updates on the host only", .hybrid = false},
                         {.name = "8 samples per GPU", .most_samples = 8},
                         {.name = "rates as our laws give them", .calibrated = false}};
  const std::size_t n = asked.size();
  std::vector<double> values(std::size(rows) * n);
  in_parallel(values.size(), [&](std::size_t i) { values[i] = answer(r, rows[i / n], asked[i % n]); });
  out.ablations.push_back({"paper", {}});
  for (const Question& q : asked) {
    out.ablations.front().values.emplace_back(q.paper);
    out.quantities.push_back(claim_of(q, 0).name);
  }
  for (std::size_t i = 0; i < std::size(rows); ++i)
    out.ablations.push_back(
        {rows[i].name, {values.begin() + std::ptrdiff_t(i * n), values.begin() + std::ptrdiff_t((i + 1) * n)}});
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  const Site sites[] = {a100(), v100()};
  const Inputs stated{};
  std::vector<Question> all;
  for (const Site& site : sites)
    for (const Question& q : questions(site)) all.push_back(q);
  std::vector<double> ours(all.size());
  in_parallel(all.size(), [&](std::size_t i) { ours[i] = answer(r, stated, all[i]); });
  Reproduction out;
  for (std::size_t i = 0; i < all.size(); ++i) out.claims.push_back(claim_of(all[i], ours[i]));
  add_ablations(r,
                {{&sites[0], 8, 0, 68},
                 {&sites[1], 8, 0, 18},
                 {&sites[0], 1, 20, 93},
                 {&sites[0], 8, 20, 1231},
                 {&sites[1], 1, 12, 33.78}},
                out);
  return out;
}

}  // namespace orrery::papers::patrickstar
