// SPDX-License-Identifier: Apache-2.0
#include "sim/app/evaluation.hpp"
#include "runtime/whole_arrays.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "sim/model/safetensors.hpp"

namespace orrery {
namespace {

bool is_separator(char c) {
  return c == ',' || c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '[' || c == ']';
}

InferOptions forward_of(const Workload& w) {
  if (w.train)
    return {.batch = w.train->batch,
            .sequence = w.train->sequence,
            .target_sequence = w.train->target_sequence,
            .dtype = w.train->dtype,
            .steps = 1,
            .seed = w.train->seed};
  return {.batch = w.generate->batch,
          .sequence = w.generate->prompt,
          .dtype = w.generate->dtype,
          .steps = 1,
          .seed = w.generate->seed};
}

}  // namespace

std::vector<std::int32_t> read_tokens(const std::string& ids_or_file) {
  const bool is_file = std::filesystem::is_regular_file(ids_or_file);
  const std::string text = is_file ? read_file(ids_or_file, 256u << 20) : ids_or_file;
  std::vector<std::int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    while (at != end && is_separator(*at)) ++at;
    if (at == end) break;
    std::int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc{} || (next != end && !is_separator(*next)))
      throw UserError{fmt::format("{} holds no token ids", in_quotes(ids_or_file)),
                      "give ids such as 15496,11,995, or a file of them"};
    ids.push_back(id);
    at = next;
  }
  if (ids.empty())
    throw UserError{fmt::format("{} holds no token ids", in_quotes(ids_or_file)),
                    "give ids such as 15496,11,995, or a file of them"};
  return ids;
}

void make_forward_pass(Scenario& s) {
  if (s.options.workload.infer) return;
  const InferOptions o = forward_of(s.options.workload);
  s.options.workload = Workload{.infer = o};
  s.text_path.clear();
}

Logits logits_of(const Scenario& scenario, const Program& program, const Recording& recording) {
  const Plan& plan = program.plans()[0];
  const Shape& shape = plan.shape(plan.find_port("logits"));
  Logits out{recording.outcomes.at(0).values.at("logits"), {}};
  const std::int64_t rows = shape[0];
  const std::int64_t given = static_cast<std::int64_t>(input_tokens(recording).size());
  const std::int64_t batch = given == rows && scenario.options.workload.infer->batch != rows &&
                                     rows % scenario.options.workload.infer->batch == 0
                                 ? scenario.options.workload.infer->batch
                                 : 1;
  out.shape = {batch, rows / batch, shape[1]};
  return out;
}

double next_token_loss(const Logits& logits, std::span<const std::int32_t> tokens) {
  const std::int64_t batch = logits.shape[0], length = logits.shape[1], classes = logits.shape[2];
  if (static_cast<std::int64_t>(tokens.size()) != batch * length || length < 2)
    throw UserError{
        "there is no next token to predict: a loss needs at least two tokens of a model that gives logits for each"};
  double sum = 0;
  for (std::int64_t i = 0; i < batch * length; ++i) {
    if (i % length == length - 1) continue;
    const auto row =
        std::span{logits.values}.subspan(static_cast<std::size_t>(i * classes), static_cast<std::size_t>(classes));
    const double most = *std::max_element(row.begin(), row.end());
    double total = 0;
    for (const double v : row) total += std::exp(v - most);
    sum += most + std::log(total) - row[static_cast<std::size_t>(tokens[static_cast<std::size_t>(i + 1)])];
  }
  return sum / double(batch * (length - 1));
}

std::vector<std::int32_t> input_tokens(const Recording& recording) {
  for (const PortValues& input : recording.steps.at(0).inputs)
    if (input.port == "tokens") return input.indices;
  return {};
}

std::string decoded(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens) {
  const auto is_known = [&](std::int32_t t) { return t >= 0 && t < tokenizer.vocab_size(); };
  if (2 * std::count_if(tokens.begin(), tokens.end(), is_known) < static_cast<std::ptrdiff_t>(tokens.size())) return {};
  std::string text;
  std::vector<TokenId> known;
  const auto flush = [&] {
    if (!known.empty()) text += tokenizer.decode(known);
    known.clear();
  };
  for (const std::int32_t t : tokens) {
    if (is_known(t)) {
      known.push_back(static_cast<TokenId>(t));
      continue;
    }
    flush();
    text += "\xef\xbf\xbd";
  }
  flush();
  return text;
}

std::string one_line(std::string_view text, std::size_t letters) {
  std::string out;
  for (const char c : text) {
    if (out.size() == letters) return out + " …";
    const bool is_blank = static_cast<unsigned char>(c) <= ' ' || c == '\x7f';
    if (!is_blank)
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  return out;
}

namespace {

/// Weights that are newer elsewhere come to where the plan places them.
void bring_home(const Program& program, Executor& executor) {
  std::optional<WriteBack> last = program.write_back();
  if (!last) return;
  executor.prepare(last->plan);
  for (const PortValues& input : last->step.inputs)
    write_port(executor, last->plan, input.port, std::span<const std::int32_t>{input.indices});
  executor.execute(last->plan, last->step.bindings);
}

}  // namespace

void save_weights(const Scenario& s, const Program& program, Executor& executor, const std::string& path) {
  bring_home(program, executor);
  const Plan& plan = program.plans()[0];
  std::vector<std::vector<float>> contents;
  std::vector<TensorToWrite> tensors;
  for (std::size_t i = 0; i < s.model.parameters.size(); ++i) {
    const Parameter& p = s.model.parameters[i];
    const std::vector<double> values = read_parameter(executor, plan, ParameterId{i}, p.elements());
    if (values.empty()) continue;
    contents.emplace_back(values.begin(), values.end());
    tensors.push_back({p.name, DType::F32, p.shape, std::as_bytes(std::span{contents.back()})});
  }
  write_safetensors(path, tensors, {{"format", "pt"}});
}

void send_weights(const Scenario& s, const Program& program, const Executor& executor) {
  for (std::size_t i = 0; i < s.model.parameters.size(); ++i)
    (void)read_parameter(executor, program.plans()[0], ParameterId{i}, s.model.parameters[i].elements());
}

}  // namespace orrery
