// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/app/session.hpp"

namespace orrery {

/// Token ids from "1,2,3", or from a file of numbers between spaces, commas or line ends. Throws UserError.
std::vector<std::int32_t> read_tokens(const std::string& ids_or_file);

/// The workload as one forward pass over the same sizes: what `--logits` and `--loss` look at.
void make_forward_pass(Scenario& scenario);

/// The logits of the first step of a forward pass, with their shape: samples, positions, classes.
struct Logits {
  std::vector<double> values;
  std::vector<std::int64_t> shape;
};
Logits logits_of(const Scenario& scenario, const Program& program, const Recording& recording);

/// Mean cross-entropy of each token given those before it, in nats. Throws UserError when there is no next token to
/// predict.
double next_token_loss(const Logits& logits, std::span<const std::int32_t> tokens);

/// The inputs called "tokens" of the first step; empty for models without.
std::vector<std::int32_t> input_tokens(const Recording& recording);

/// A text of generated tokens; ids that the tokenizer does not know become U+FFFD. Empty when most are unknown: what an
/// untrained network gives is no text.
std::string decoded(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens);

/// A text on one line: white space and control characters become single spaces, and no more than `letters` bytes stay.
std::string one_line(std::string_view text, std::size_t letters);

/// Writes the parameters as they are after a run, as float32 under their Hugging Face names.
void save_weights(const Scenario& scenario, const Program& program, Executor& executor, const std::string& path);
/// The part of a process in that when another one writes the file.
void send_weights(const Scenario& scenario, const Program& program, const Executor& executor);

}  // namespace orrery
