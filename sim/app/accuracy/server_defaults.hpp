// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "sim/app/accuracy/serving_rows.hpp"

namespace orrery {

/// What servers do when nobody says anything else, by their documentation: limits of a step on large GPUs, and the part
/// of the memory that weights and pool take (SGLang keeps 1.5 MB per token of a chunk aside).
struct ServerDefaults {
  std::string_view part;  // of the software's name in small letters
  std::string_view profile, scheduler;
  std::int64_t max_sequences, max_tokens;
  double memory;
};
/// Null for software that is no server known here.
const ServerDefaults* find_server(std::string_view software);
/// Takes them over for the row's cluster, without shared prefixes.
void apply_server(ServedRow& row, const ServerDefaults& server);

/// The profile of a server on this device: on Blackwell its kernels are others (4-bit experts, launches that overlap).
std::string profile_on(const std::string& profile, std::string_view device);

/// Sequences that vLLM's server takes on GPUs with less than 70 GB, on A100, and for gpt-oss.
constexpr std::int64_t kVllmSequences = 256;
/// Later models of equal shape know more positions than the first of them.
constexpr std::int64_t kLongContext = 131072;

/// A row that gives the sizes of its model, with positions for long contexts: model, cluster, ranks, the defaults of
/// its server and the type of its weights.
ServedRowOf read_model_of_sizes(const CsvRow& row, const Locations& locations);
/// `ServeOptions::weights` for what a table calls the type of a model's products, in small letters.
std::string weights_of(std::string_view model, const std::string& quant);

}  // namespace orrery
