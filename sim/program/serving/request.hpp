// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/random.hpp"
#include "sim/program/serving/request_options.hpp"

namespace orrery {

/// What somebody asks of a server: `prompt` tokens in, `output` tokens out. Times are seconds on the server's clock.
struct Request {
  std::int64_t id = 0;  // in order of arrival, from 0
  double arrival = 0;
  std::int64_t prompt = 1, output = 1;
  /// The first `shared` tokens of the prompt are those of every request of this group; −1: of nobody else's.
  std::int64_t group = -1, shared = 0;
  std::vector<std::int32_t> tokens;  // of the prompt, where they are executed; else empty
};

/// Requests one at a time in order of arrival: memory does not grow with their number.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  /// The next one; nothing when there are no more. Throws UserError with file and line for what is no request.
  virtual std::optional<Request> next() = 0;
  /// Requests that were left out or cut so far, because they are longer than the model's context.
  virtual std::int64_t overlong() const { return 0; }
  /// Whether a trace goes on behind the last request that was asked for.
  virtual bool has_more() { return false; }
};

/// `count` requests drawn from distributions; the same seed draws the same ones on every machine. Throws UserError when
/// options do not make sense together, or an empirical distribution cannot be read. `context`: of the model, in tokens;
/// lengths are drawn again until prompt and output together fit into it.
std::unique_ptr<RequestSource> generated_requests(const TrafficOptions& options, std::int64_t context);

/// A file of requests, read as far as it is needed: CSV with a head, or one JSON object a line. Columns or keys, by
/// what traces call them:
///   arrival in seconds   arrival_s, arrival, arrived_at, timestamp_s; in milliseconds: timestamp, timestamp_ms
///   prompt               input_tokens, prompt_tokens, num_prefill_tokens, input_length, ContextTokens
///   output               output_tokens, num_decode_tokens, output_length, GeneratedTokens
///   run                  run_id: only the rows of `run`, where one is asked for
/// Throws UserError with the line: a column that is missing, arrivals that go back in time, lengths below 1, and, as
/// `overlong` says, prompts that do not fit into the model's context.
std::unique_ptr<RequestSource> traced_requests(const TrafficOptions& options, std::int64_t context);

/// Either of both: a trace where the options name one.
std::unique_ptr<RequestSource> make_requests(const TrafficOptions& options, std::int64_t context);

}  // namespace orrery
