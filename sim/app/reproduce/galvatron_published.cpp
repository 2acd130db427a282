// SPDX-License-Identifier: Apache-2.0
// From the code of Galvatron's authors: layers in single precision as they measured them, how many microbatches they
// take, and what it plans with them.
#include "sim/app/reproduce/galvatron_published.hpp"

#include <fmt/format.h>

namespace orrery {
namespace {

constexpr int kTitans = 8;

/// ms per MiB between RTX TITAN on PCIe.
constexpr MeasuredRing kTitanRings[] = {
    {1, 8, true, 0.21530878},   {1, 4, false, 0.220138889}, {1, 4, true, 0.226519097},
    {1, 2, false, 0.271614583}, {1, 2, true, 0.277994792},  {2, 4, true, 0.230750868},
    {2, 2, false, 0.224153646}, {2, 2, true, 0.275195313},  {4, 2, true, 0.264908854}};

constexpr GalvatronLayer kBertLayer{76.98, {94.07, 52.475, 31.754375, 21.61171875}, 55.0 / 24, 512 * 1280};
constexpr GalvatronLayer kVitLayer{76.98, {20.27, 12.12, 7.97, 5.93}, 0.75, 196 * 1280};
constexpr GalvatronLayer kT5Layers[] = {{48.01, {91.003, 54.004, 32.785, 22.8175}, 35.0 / 24, 512 * 1024},
                                        {64.012, {157.755, 90.756, 56.384, 39.117}, 65.0 / 24, 512 * 1024, true}};
constexpr GalvatronLayer kSwinLayers[] = {{4.8, {72.584, 43.318, 29.716, 22.36}, 1.25, 3136 * 320},
                                          {18.82, {36.423, 21.33, 14.708, 11.237}, 0.8875, 784 * 640},
                                          {77.05, {18.317, 11.252, 7.561, 5.611}, 0.8, 196 * 1280},
                                          {302.22, {9.183, 5.076, 3.835, 2.802}, 1.225, 49 * 2560}};

double microbatches_of_bert(double samples, const GalvatronWay& w) {
  if (w.dp == 1 && w.tp > 1) return samples / 4;
  return samples < 6 ? samples / 2 : samples / 8 + 2;
}
double microbatches_of_vit(double samples, const GalvatronWay&) { return samples == 8 ? 1 : 2; }
double microbatches_of_t5(double samples, const GalvatronWay& w) { return samples == 2 ? 1 : w.pp == 8 ? 3 : 2; }
double microbatches_of_swin(double samples, const GalvatronWay&) {
  return samples <= 8 ? 1 : samples < 32 ? 2 : samples <= 96 ? 3 : 4;
}

/// So many layers of each kind, one kind after another.
std::vector<GalvatronLayer> layers_of_kinds(std::span<const GalvatronLayer> kinds,
                                            std::initializer_list<std::size_t> counts) {
  std::vector<GalvatronLayer> out;
  const GalvatronLayer* kind = kinds.data();
  for (const std::size_t n : counts) out.insert(out.end(), n, *kind++);
  return out;
}
GalvatronModel model_of_bert(std::size_t layers) {
  return {layers_of_kinds({&kBertLayer, 1}, {layers}), 790, 300, 0, microbatches_of_bert, kTitanRings};
}
GalvatronModel model_of_vit(std::size_t layers) {
  return {layers_of_kinds({&kVitLayer, 1}, {layers}), 45.56, 13, 0, microbatches_of_vit, kTitanRings};
}
GalvatronModel model_of_t5(std::size_t layers) {
  return {layers_of_kinds(kT5Layers, {layers / 2, layers / 2}), 900, 350, 2.5, microbatches_of_t5, kTitanRings};
}
GalvatronModel model_of_swin(std::size_t layers) {
  return {layers_of_kinds(kSwinLayers, {2, 2, layers - 6, 2}), 312, 70, 0, microbatches_of_swin, kTitanRings};
}

constexpr GalvatronNetwork kNetworks[] = {{"BERT-Huge", model_of_bert, true},
                                          {"ViT-Huge", model_of_vit},
                                          {"T5-Large", model_of_t5},
                                          {"Swin-Huge", model_of_swin}};

// clang-format off
constexpr GalvatronRow kPublishedRows[] = {
    {0, 32, 8, {{{}, {4.82, 8, 1}, {}, {}, {}, {}, {}, {9.37, 8, 2}}}, 2},
    {0, 32, 12, {{{}, {8.94, 16, 1}, {6.14, 8, 1}, {9.92, 8, 8}, {12.77, 16, 2}, {10.36, 8, 1}, {9.92, 8, 8},
     {13.24, 16, 1}}}, 16},
    {0, 32, 16, {{{6.96, 8, 1}, {12.51, 24, 1}, {6.14, 8, 1}, {12.02, 16, 8}, {13.55, 24, 2}, {14.59, 16, 1},
     {15.01, 16, 2}, {16.65, 24, 2}}}, 10},
    {0, 32, 20, {{{12.51, 16, 1}, {18.38, 40, 1}, {6.14, 8, 1}, {13.77, 24, 8}, {14.1, 32, 2}, {16.93, 24, 1},
     {18.88, 24, 2}, {18.94, 32, 2}}}, 8},
    {0, 48, 8, {{{}, {}, {}, {}, {}, {}, {}, {}}}},
    {0, 48, 16, {{{}, {5.96, 16, 1}, {4.09, 8, 1}, {6.61, 8, 8}, {6.32, 8, 2}, {6.91, 8, 1}, {6.61, 8, 8}, {8.56,
     16, 1}}}},
    {1, 32, 8, {{{}, {34.24, 64, 1}, {16.48, 8, 1}, {22.45, 40, 8}, {31.52, 40, 2}, {29.99, 32, 1}, {34.2, 48, 4},
     {37.73, 56, 1}}}, 31},
    {1, 32, 12, {{{14.47, 16, 1}, {52.76, 112, 1}, {16.48, 8, 1}, {22.45, 40, 8}, {33.45, 80, 2}, {44.77, 64, 1},
     {53.31, 72, 2}, {53.31, 72, 2}}}},
    {1, 32, 16, {{{47.1, 64, 1}, {66.64, 160, 1}, {16.48, 8, 1}, {22.45, 40, 8}, {33.94, 128, 2}, {53, 88, 1},
     {58.16, 120, 2}, {67.54, 160, 1}}}, 30},
    {1, 32, 20, {{{69.46, 112, 1}, {73.09, 216, 1}, {16.48, 8, 1}, {22.45, 40, 8}, {34.13, 168, 2}, {69.46, 112, 1},
     {69.46, 112, 1}, {75.43, 152, 1}}}, 12},
    {1, 48, 8, {{{}, {12.55, 32, 1}, {10.99, 8, 1}, {14.96, 16, 8}, {12.65, 16, 2}, {16.02, 16, 1}, {19.87, 24, 4},
     {19.87, 24, 4}}}},
    {1, 48, 16, {{{}, {33.32, 104, 1}, {10.99, 8, 1}, {14.96, 72, 8}, {22.21, 72, 2}, {27.82, 48, 1}, {32.39, 56,
     2}, {33.55, 64, 2}}}},
    {2, 32, 8, {{{}, {6.06, 8, 1}, {}, {}, {9.67, 8, 2}, {}, {10.08, 8, 4}, {10.08, 8, 4}}}},
    {2, 32, 12, {{{}, {11.13, 16, 1}, {6.24, 8, 1}, {10.91, 8, 8}, {9.67, 8, 2}, {10.68, 8, 1}, {11.9, 16, 4},
     {14.31, 16, 2}}}},
    {2, 32, 16, {{{8.44, 8, 1}, {15.44, 24, 1}, {6.24, 8, 1}, {10.91, 8, 8}, {11.47, 16, 2}, {15.15, 16, 1}, {16.46,
     16, 2}, {16.62, 24, 2}}}},
    {2, 32, 20, {{{15.02, 16, 1}, {19.14, 32, 1}, {6.24, 8, 1}, {10.91, 8, 8}, {11.9, 24, 2}, {16.87, 24, 1},
     {18.71, 24, 2}, {19.14, 32, 1}}}},
    {2, 48, 8, {{{}, {}, {}, {}, {}, {}, {}, {}}}},
    {2, 48, 16, {{{}, {7.42, 16, 1}, {4.16, 8, 1}, {7.27, 8, 8}, {6.45, 8, 2}, {7.12, 8, 1}, {7.27, 8, 8}, {8.56,
     16, 2}}}},
    {3, 32, 8, {{{}, {24.4, 48, 1}, {13.66, 8, 1}, {26.42, 32, 8}, {26.61, 40, 2}, {29.58, 24, 1}, {29.32, 40, 4},
     {34.11, 48, 1}}}, 32},
    {3, 32, 16, {{{29.37, 40, 1}, {52.87, 136, 1}, {13.66, 40, 1}, {32.03, 104, 8}, {32.07, 104, 2}, {48.57, 80, 1},
     {49.02, 96, 2}, {56.6, 136, 1}}}},
    {3, 48, 8, {{{}, {11.79, 32, 1}, {9.62, 8, 1}, {13.36, 16, 8}, {11.38, 16, 2}, {15.33, 16, 1}, {18.05, 24, 4},
     {19.24, 32, 4}}}},
    {3, 48, 12, {{{}, {21.17, 64, 1}, {9.62, 8, 1}, {18.04, 32, 8}, {18.59, 40, 2}, {20.37, 32, 1}, {20.57, 48, 4},
     {24.9, 64, 4}}}},
    {3, 48, 16, {{{}, {27.02, 88, 1}, {9.62, 40, 1}, {18.04, 32, 8}, {21.89, 72, 2}, {27.41, 48, 1}, {29.29, 56, 2},
     {30.17, 72, 2}}}},
    {3, 48, 20, {{{13.09, 24, 1}, {33.64, 120, 1}, {9.62, 40, 1}, {18.04, 88, 8}, {22.23, 96, 2}, {30.91, 72, 1},
     {32.46, 80, 2}, {35.75, 120, 1}}}}};
// clang-format on

}  // namespace

std::vector<GalvatronWay> galvatron_family(std::size_t family) {
  std::vector<GalvatronWay> ways = galvatron_ways(kTitans);
  std::erase_if(ways, [&](const GalvatronWay& w) {
    switch (family) {
      case 0:
        return w != GalvatronWay{.dp = 8};
      case 1:
        return w != GalvatronWay{.dp = 8, .sharded = true};
      case 2:
        return w != GalvatronWay{.tp = 8};
      case 3:
        return w != GalvatronWay{.pp = 8};
      case 4:
        return w != GalvatronWay{.pp = 2, .tp = 2, .dp = 2, .consecutive = true};
      case 5:
        return w.pp > 1 || w.sharded;
      case 6:
        return w.tp > 1 || w.sharded;
      default:
        return false;
    }
  });
  return ways;
}

std::span<const GalvatronNetwork> galvatron_networks() { return kNetworks; }

std::string GalvatronRow::name() const { return fmt::format("{}-{}, {} GiB", kNetworks[network].name, layers, gib); }
GalvatronModel GalvatronRow::model() const { return kNetworks[network].model(layers); }

std::span<const GalvatronRow> galvatron_rows() { return kPublishedRows; }

StepSplit galvatron_split(const GalvatronPlan& plan, const std::string& schedule, const std::string& replicas) {
  StepSplit s;
  s.mesh = {.pp = plan.ways.front().pp, .dp = plan.ways.front().ranks()};
  s.schedule = schedule, s.data = replicas, s.sequence_parallel = false, s.tp_comm_overlap = false;
  for (const GalvatronWay& w : plan.ways) {
    const char* order = w.tp == 1 ? "" : w.dp == 1 ? "tp{1}" : w.consecutive ? "dp{0} tp{1}" : "tp{1} dp{0}";
    s.layers.push_back({fmt::format(fmt::runtime(order), w.dp, w.tp), w.sharded ? "zero3" : replicas,
                        kRecomputations[w.again ? std::size(kRecomputations) - 1 : 0]});
  }
  return s;
}

}  // namespace orrery
