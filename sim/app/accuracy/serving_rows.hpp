// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "sim/app/accuracy/named_models.hpp"
#include "sim/app/accuracy/row_kind.hpp"
#include "sim/app/serving/step_times.hpp"

namespace orrery {

/// Predicts means of time to the first token and per token behind it, of servers under a number of clients: each sends
/// its next request when the last one was answered, with lengths as in the row.
std::unique_ptr<RowPredictor> make_silicon_predictor(const Wiring& wiring);
/// The same of runs of which the table says more: lengths, rate and number of requests.
std::unique_ptr<RowPredictor> make_serving_run_predictor(const Wiring& wiring);
/// Predicts the tokens per second of engines that were given all requests at once.
std::unique_ptr<RowPredictor> make_offline_predictor(const Wiring& wiring);
/// Predicts single requests of a trace: a whole run is simulated, and each row compared with its request.
std::unique_ptr<RowPredictor> make_served_request_predictor(const Wiring& wiring);

/// What a row says was served, how, and what was measured.
struct ServedRow {
  std::string row_id, model_name, profile;
  std::string_view server;  // as in `ServerDefaults`
  std::shared_ptr<const Model> model;
  Cluster cluster;
  std::int64_t tp = 1;
  ServeOptions options;
  /// Makes the requests; empty: as the options say.
  std::function<std::unique_ptr<RequestSource>()> requests = {};
  /// What the program derives from the room that it finds; empty: nothing.
  std::function<void(const ReplicaMemory& memory, ServeOptions& options)> limits = {};
  std::int64_t first = 0;  // requests from here on count: those before fill the server, or its cache of prompts
  double at_once = 0;      // part of the requests that came together at the start
  double reading = 1;      // times as long as text takes to be read
  double handing = 1;      // times as long as tokens take to be handed out one by one
  /// Seconds by what they are: "ttft", "tpot", "e2e", "itl" are means over requests that count, with "_median" behind
  /// it their median; "duration" is from the first of these to the last token, and "rate" the tokens of their answers
  /// in each of its seconds.
  std::vector<std::pair<std::string, double>> measured;
};
using ServedRowOf = std::variant<ServedRow, Skip>;
ServedRowOf read_silicon_row(const CsvRow& row, NamedModels& models);
ServedRowOf read_serving_run(const CsvRow& row, NamedModels& models);
ServedRowOf read_offline_row(const CsvRow& row, NamedModels& models);
/// Whether it is a number of requests, of clients, or of tokens of a request: 1 to ten million.
bool is_count(const std::optional<double>& v);

/// A reader of rows of one kind of table; null for kinds that tell of no server's rows.
using ReadServed = ServedRowOf (*)(const CsvRow& row, NamedModels& models);
ReadServed served_reader(std::string_view kind);
/// vLLM with its defaults, by names of GPU and model: on one GPU, on so many as the name says behind "-TP".
ServedRowOf served_run(std::string_view gpu, std::string_view model, const Locations& locations);

/// Times of steps for rows, made once for what rows have in common. Safe to call from several threads.
class Deployments {
 public:
  /// Times are kept for the `most` deployments that were asked for last.
  explicit Deployments(const Wiring& wiring, std::size_t most = 32);
  ~Deployments();
  /// Of the requests that count, by the names of `ServedRow::measured`.
  std::map<std::string, double> predict(const ServedRow& row, const SoftwareProfile& profile);
  /// Mean time to the first token of so many prompts as there are clients, all at once.
  double first_wave(const ServedRow& row, const SoftwareProfile& profile);
  /// Simulates and gives each answer to `on_answer`, with steps so many times as long.
  ServingResult simulate(const ServedRow& row, const SoftwareProfile& profile,
                         const std::function<void(const Answer&)>& on_answer, const StepFactors& factors = {});
  /// How far its steps may be off.
  StepDoubt doubt(const ServedRow& row, const SoftwareProfile& profile);

 private:
  struct Entry;
  struct Kept {
    std::shared_ptr<Entry> entry;
    std::uint64_t asked = 0;  // when, in numbers of questions
  };
  std::shared_ptr<Entry> find(const ServedRow& row, const SoftwareProfile& profile);
  void forget_oldest();

  const Wiring& wiring_;
  std::size_t most_;
  std::mutex mutex_;
  std::map<std::string, Kept> entries_;
  std::uint64_t questions_ = 0;
};

}  // namespace orrery
