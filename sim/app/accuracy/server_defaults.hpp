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
  std::string_view name, scheduler;
  std::int64_t max_sequences, max_tokens;
  double memory;
  bool narrow_keys = false;  // in 8 bits where weights are in 8 or 4; else in 16 unless it is told
};
/// Null for software that is no server known here.
const ServerDefaults* find_server(std::string_view software);

/// B200, B300, GB200 and GB300.
bool is_blackwell(std::string_view device);
/// A server is asked request by request; an engine is given all of them at once.
enum class Asked : std::uint8_t { Server, Engine };
/// The profile of a program in the version that `software` says, on a device: the one place where it is chosen.
std::string_view profile_of(const ServerDefaults& server, Asked asked, std::string_view software,
                            std::string_view device);
/// What it does by default for the row's cluster and type of weights, without shared prefixes, and its profile.
void apply_server(ServedRow& row, const ServerDefaults& server, std::string_view software, Asked asked);

/// Sequences that vLLM's server takes on GPUs with less than 70 GB, on A100, and for gpt-oss.
constexpr std::int64_t kVllmSequences = 256;
/// Later models of equal shape know more positions than the first of them.
constexpr std::int64_t kLongContext = 131072;

/// A row that gives the sizes of its model, with positions for long contexts: model, cluster, ranks, the defaults of
/// its server and the type of its weights.
ServedRowOf read_model_of_sizes(const CsvRow& row, const Locations& locations, Asked asked);
/// `ServeOptions::weights` for what a table calls the type of a model's products, in small letters.
std::string weights_of(std::string_view model, const std::string& quant);

}  // namespace orrery
