// SPDX-License-Identifier: Apache-2.0
// Strategies that use memory beyond the device's. A line in the registry each.
#pragma once

#include <memory>
#include <vector>

#include "sim/strategy/strategy.hpp"

namespace orrery {

std::unique_ptr<Strategy> make_zero_offload(const Node& options);
std::vector<OptionInfo> zero_offload_options();

std::unique_ptr<Strategy> make_activation_offload(const Node& options);
std::vector<OptionInfo> activation_offload_options();

std::unique_ptr<Strategy> make_zero_infinity(const Node& options);
std::vector<OptionInfo> zero_infinity_options();

std::unique_ptr<Strategy> make_patrickstar(const Node& options);
std::vector<OptionInfo> patrickstar_options();

std::unique_ptr<Strategy> make_gemini(const Node& options);
std::vector<OptionInfo> gemini_options();

std::unique_ptr<Strategy> make_elixir(const Node& options);
std::vector<OptionInfo> elixir_options();

std::unique_ptr<Strategy> make_elixir_v1(const Node& options);
std::vector<OptionInfo> elixir_v1_options();

std::unique_ptr<Strategy> make_angel_ptm(const Node& options);
std::vector<OptionInfo> angel_ptm_options();

std::unique_ptr<Strategy> make_cached_embedding(const Node& options);
std::vector<OptionInfo> cached_embedding_options();

std::unique_ptr<Strategy> make_memo(const Node& options);
std::vector<OptionInfo> memo_options();

}  // namespace orrery
