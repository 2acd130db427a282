// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/app/largest.hpp"
#include "sim/app/reproduce/reproduction.hpp"
#include "sim/app/wiring.hpp"
#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr ReproductionEntry kReproductions[] = {
    {"ring-self-attention", "memory and throughput of BERT with split sequences on P100", "arXiv 2105.13120",
     papers::ring_self_attention::reproduce},
    {"optimus", "matrices in squares against matrices in stripes on RTX 5000", "arXiv 2104.05343",
     papers::optimus::reproduce},
    {"amp", "ways to split a GPT-2 over 16 T4, and over V100 and T4, in their order", "arXiv 2210.07297",
     papers::amp::reproduce},
    {"galvatron", "ways of their own for layers of BERT, ViT, T5 and Swin on 8 RTX TITAN", "arXiv 2211.13878",
     papers::galvatron::reproduce},
    {"galvatron-bmw", "layers that are made again, and 1F1B, for GPT on 16 A100", "arXiv 2307.02031",
     papers::galvatron_bmw::reproduce},
    {"colossal-auto", "ways of ops on a logical mesh with recomputation, on A100 with NVLink in pairs",
     "arXiv 2302.02599", papers::colossal_auto::reproduce},
    {"sky-computing", "layers of BERT on workers of different speed, evenly and in balance", "arXiv 2202.11836",
     papers::sky_computing::reproduce},
    {"memo", "a million tokens on eight A800 by swapping and running again token by token", "arXiv 2407.12117",
     papers::memo::reproduce},
    {"kraken", "first token of networks of sub-layers side by side on A100", "arXiv 2408.07802",
     papers::kraken::reproduce},
    {"energonai", "packed rows, non-blocking stages and layers on a neighbour on A100", "arXiv 2209.02341",
     papers::energonai::reproduce},
    {"leviathan", "tokens of a round by formula, speed-ups of T5-XXL", "arXiv 2211.17192",
     papers::leviathan::reproduce},
    {"medusa", "a static tree and the tokens it gives Vicuna", "arXiv 2401.10774", papers::medusa::reproduce},
    {"eagle", "tokens per step of trees, throughput by batch on one H100", "arXiv 2401.15077, 2503.01840",
     papers::eagle::reproduce},
    {"glide-cape", "a drafter that reads the model's cache, with alternatives by confidence", "arXiv 2402.02082",
     papers::glide_cape::reproduce},
    {"clover", "a recurrent drafter with trees of 4 against Medusa, by batch", "arXiv 2405.00263",
     papers::clover::reproduce},
    {"elixir", "chunks in searched blocks against DeepSpeed on A100", "arXiv 2212.05339", papers::elixir::reproduce},
    {"angel-ptm", "pages over device and host memory against DeepSpeed on A100", "arXiv 2303.02868",
     papers::angel_ptm::reproduce},
    {"zero-offload", "what one GPU trains with states and update on the host", "arXiv 2101.06840",
     papers::zero_offload::reproduce},
    {"zero-infinity", "a trillion parameters on one DGX-2, and 32 of them", "arXiv 2104.07857",
     papers::zero_infinity::reproduce},
    {"flexmoe", "replicas of hot experts against experts that stay, on A100", "arXiv 2304.03946",
     papers::flexmoe::reproduce},
    {"patrickstar", "the largest models that chunks on device and host train, and how fast", "arXiv 2108.05818",
     papers::patrickstar::reproduce},
    {"dense-to-sparse", "a gate that begins with all experts against Switch's on A100", "arXiv 2112.14397",
     papers::dense_to_sparse::reproduce},
    {"het", "caches of embeddings with bounded staleness against servers over Ethernet", "arXiv 2112.07221",
     papers::het::reproduce},
    {"ones", "jobs that share 64 GPUs, with batches that follow, against other schedulers", "arXiv 2108.03645",
     papers::ones::reproduce},
    {"cached-embedding", "tables on the host, one row of a hundred on an A100", "arXiv 2208.05321",
     papers::cached_embedding::reproduce},
    {"datasculpt", "documents cut or whole in windows of 16k to 64k tokens, and training on them", "arXiv 2409.00997",
     papers::datasculpt::reproduce},
    {"baichuan-seed", "7 billion parameters and 3 trillion tokens on 1,024 A800", "arXiv 2408.15079",
     papers::baichuan_seed::reproduce},
    {"optex", "iterations that gradients at predicted points save, and where they pay", "arXiv 2402.11427",
     papers::optex::reproduce},
};

}  // namespace

std::span<const ReproductionEntry> reproductions() { return kReproductions; }

const ReproductionEntry& find_reproduction(std::string_view name) {
  std::vector<std::string> known;
  for (const ReproductionEntry& e : kReproductions) {
    if (e.name == name) return e;
    known.emplace_back(e.name);
  }
  throw unknown_name("reproduction", name, known);
}

bool Claim::holds() const { return !calibrated && std::abs(ours - paper) <= within * std::abs(paper); }

namespace {

/// Until the first op that the backward pass adds; the whole step where there is none.
double forward_seconds(const Timeline& timeline, const PlanDigests& plans) {
  std::int64_t end_ps = timeline.makespan_ps;
  for (const Span& s : timeline.spans) {
    const Phase phase = plan_of(timeline, plans, s)[s.op].phase;
    if (phase == Phase::Backward || phase == Phase::Recompute) end_ps = std::min(end_ps, s.start_ps);
  }
  return double(end_ps) * 1e-12;
}

Prediction simulate_step(const Wiring& wiring, const std::string& text,
                         const std::vector<std::pair<std::string, double>>& scales, bool fused) {
  const Scenario s = make_scenario(parse_yaml(text, "reproduction"), "reproduction", wiring.locations());
  const Machine machine = wiring.machine(s.options, s.cluster);
  for (const auto& [name, factor] : scales) machine.cost->scale_parameter(name, factor);
  const Simulation one = simulate_scenario(
      s, machine, wiring, 1, [](std::size_t) {}, {}, fused);
  return {make_report({s, *one.program, one.recording, &machine}),
          forward_seconds(one.recording.timeline, digests_of(*one.program))};
}

}  // namespace

Prediction KnownPredictions::get(const std::string& question, const std::function<Prediction()>& make) {
  {
    const std::lock_guard lock{mutex_};
    if (const auto it = answers_.find(question); it != answers_.end()) {
      if (it->second.refusal) std::rethrow_exception(it->second.refusal);
      return *it->second.prediction;
    }
  }
  Answer answer;
  try {
    answer.prediction = make();
  } catch (const UserError&) {
    answer.refusal = std::current_exception();
  }
  const std::lock_guard lock{mutex_};
  answers_.emplace(question, answer);
  if (answer.refusal) std::rethrow_exception(answer.refusal);
  return *answer.prediction;
}

Prediction Reproducer::predict(const std::string& text, const std::vector<std::pair<std::string, double>>& scales,
                               bool fused) const {
  pause();
  std::string question = text + (fused ? "fused\n" : "");
  for (const auto& [name, factor] : scales) question += fmt::format("{} {}\n", name, factor);
  const KeptFiles::InUse reading{files};
  return known.get(question, [&] { return simulate_step(wiring, text, scales, fused); });
}

std::string Reproducer::cluster(const std::string& name, std::int64_t nodes) const {
  Node cluster = read_yaml(wiring.locations().find_cluster(name));
  set_path(cluster, fmt::format("nodes={}", nodes), {});
  return to_flow_yaml(cluster);
}

std::int64_t Reproducer::largest_that_fits(const std::function<std::string(std::int64_t)>& text, std::int64_t step,
                                           std::int64_t most) const {
  return step *
         largest_passing(most / step, [&](std::int64_t k) { return predict(text(k * step)).report.memory.fits(); });
}

}  // namespace orrery
