// SPDX-License-Identifier: Apache-2.0
// Requests from a file, line by line: as much of it is read as is asked for.
#include <fmt/format.h>

#include <cmath>
#include <fstream>

#include "sim/base/csv.hpp"
#include "sim/base/error.hpp"
#include "sim/base/units.hpp"
#include "sim/program/serving/request.hpp"

namespace orrery {
namespace {

constexpr std::size_t kLongestLine = 1 << 20;
constexpr std::size_t kShown = 80;  // bytes of a line that is too long
constexpr double kMostSeconds = 1e9;

/// A quantity of a request, and what traces call it.
struct Field {
  std::string_view what;
  std::vector<std::string_view> names;
  double scale = 1;
};
const std::vector<Field>& arrival_fields() {
  static const std::vector<Field> all = {
      {"arrival", {"arrival_s", "arrival", "arrived_at", "timestamp_s"}, 1},
      {"arrival", {"timestamp", "timestamp_ms"}, 1e-3},
  };
  return all;
}
const Field& prompt_field() {
  static const Field f{"prompt",
                       {"input_tokens", "prompt_tokens", "num_prefill_tokens", "input_length", "ContextTokens"}};
  return f;
}
const Field& output_field() {
  static const Field f{"output", {"output_tokens", "num_decode_tokens", "output_length", "GeneratedTokens"}};
  return f;
}
const Field& run_field() {
  static const Field f{"run", {"run_id"}};
  return f;
}

/// One line as texts by name.
class Line {
 public:
  virtual ~Line() = default;
  virtual bool read(const std::string& text, int number) = 0;  // false: the head, or an empty line
  virtual const std::string* find(const Field& f) const = 0;   // null: no such column
  /// That none of its names is there: where that could be mended.
  virtual Diagnostic lacks(const Field& f, const std::string& text, int number) const = 0;
};

std::string names_hint(const Field& f) { return fmt::format("it may be called {}", fmt::join(f.names, ", ")); }

class CsvLine final : public Line {
 public:
  explicit CsvLine(std::string file) : file_{std::move(file)} {}

  bool read(const std::string& text, int number) override {
    if (head_.empty()) {
      head_ = split(text, number);
      head_text_ = text, head_number_ = number;
      return false;
    }
    cells_ = split(text, number);
    if (cells_.size() != head_.size())
      throw UserError{Diagnostic{fmt::format("{} cells under a head of {}", cells_.size(), head_.size()),
                                 "each line has a cell for each column", file_, number, 1, text}};
    return true;
  }
  const std::string* find(const Field& f) const override {
    for (const std::string_view name : f.names)
      for (std::size_t i = 0; i < head_.size(); ++i)
        if (head_[i] == name) return &cells_[i];
    return nullptr;
  }
  Diagnostic lacks(const Field& f, const std::string&, int) const override {
    return {fmt::format("no column for the {}", f.what), names_hint(f), file_, head_number_, 1, head_text_};
  }

 private:
  /// Cells in quotes are left to the reader of tables.
  std::vector<std::string> split(const std::string& text, int number) const {
    if (text.find('"') != std::string::npos) {
      try {
        const CsvTable table{text, file_};
        return table.columns();
      } catch (const UserError& e) {
        throw UserError{Diagnostic{e.diagnostics().front().message, {}, file_, number, 1, text}};
      }
    }
    std::vector<std::string> cells;
    for (std::size_t first = 0;;) {
      const std::size_t end = text.find(',', first);
      cells.push_back(text.substr(first, end == std::string::npos ? end : end - first));
      if (end == std::string::npos) return cells;
      first = end + 1;
    }
  }

  std::string file_, head_text_;
  std::vector<std::string> head_, cells_;
  int head_number_ = 0;
};

class JsonLine final : public Line {
 public:
  explicit JsonLine(std::string file) : file_{std::move(file)} {}

  bool read(const std::string& text, int number) override {
    try {
      node_ = parse_json(text, file_);
    } catch (const UserError& e) {
      Diagnostic d = e.diagnostics().front();
      d.line = number;
      throw UserError{d};
    }
    return true;
  }
  const std::string* find(const Field& f) const override {
    for (const std::string_view name : f.names)
      if (const Node* n = node_.find(name)) return &n->scalar;
    return nullptr;
  }
  Diagnostic lacks(const Field& f, const std::string& text, int number) const override {
    return {fmt::format("no key for the {}", f.what), names_hint(f), file_, number, 1, text};
  }

 private:
  std::string file_;
  Node node_;
};

class TracedRequests final : public RequestSource {
 public:
  TracedRequests(const TrafficOptions& o, std::int64_t context) : o_{o}, context_{context}, in_{o.trace} {
    if (!in_) throw UserError{fmt::format("cannot read the trace {}", in_quotes(o.trace)), "give a CSV or JSONL file"};
    const bool json = in_.peek() == '{';
    if (json)
      line_ = std::make_unique<JsonLine>(o.trace);
    else
      line_ = std::make_unique<CsvLine>(o.trace);
  }

  std::optional<Request> next() override {
    if (o_.requests > 0 && made_ == o_.requests) return std::nullopt;
    while (read_line()) {
      std::optional<Request> r = request();
      if (!r) continue;
      r->id = made_++;
      return r;
    }
    if (made_ == 0 && overlong_ == 0)
      throw UserError{fmt::format("the trace {} has no requests{}", in_quotes(o_.trace),
                                  o_.run.empty() ? "" : fmt::format(" of the run {}", in_quotes(o_.run)))};
    return std::nullopt;
  }
  std::int64_t overlong() const override { return overlong_; }
  bool has_more() override { return made_ == o_.requests && in_.peek() != std::char_traits<char>::eof(); }

 private:
  [[noreturn]] void refuse(std::string message, std::string hint) const {
    throw UserError{Diagnostic{std::move(message), std::move(hint), o_.trace, number_, 1, text_}};
  }

  /// The next line without its end. No more of a file than a line may have is ever held.
  bool take_line() {
    constexpr int kEnd = std::char_traits<char>::eof();
    text_.clear();
    ++number_;
    std::streambuf& bytes = *in_.rdbuf();
    for (int c = bytes.sbumpc(); c != '\n'; c = bytes.sbumpc()) {
      if (c == kEnd) return !text_.empty();
      if (text_.size() == kLongestLine) {
        text_.resize(kShown);
        refuse(fmt::format("a line of more than {} bytes", kLongestLine), "a line holds one request");
      }
      text_.push_back(static_cast<char>(c));
    }
    return true;
  }

  bool read_line() {
    while (take_line()) {
      if (!text_.empty() && text_.back() == '\r') text_.pop_back();
      if (!text_.empty() && line_->read(text_, number_)) return true;
    }
    return false;
  }

  const std::string& cell(const Field& f) const {
    if (const std::string* found = line_->find(f)) return *found;
    throw UserError{line_->lacks(f, text_, number_)};
  }

  double number(const Field& f) const {
    const std::string& text = cell(f);
    const std::optional<double> value = parse_number(text);
    if (!value) refuse(fmt::format("{} {} is no number", f.what, in_quotes(text)), "write plain numbers");
    return *value;
  }

  std::int64_t length(const Field& f) const {
    const double value = number(f);
    if (value < 1 || value != std::floor(value) || value > 1e12)
      refuse(fmt::format("{} of {} tokens", f.what, cell(f)),
             "lengths are whole numbers from 1 on: leave such requests out");
    return static_cast<std::int64_t>(value);
  }

  double arrival() {
    const Field* field = &arrival_fields().front();
    for (const Field& f : arrival_fields())
      if (line_->find(f)) field = &f;
    const double t = number(*field) * field->scale;
    if (!first_) first_ = t;
    const double since = t - *first_;
    if (since < last_ || since > kMostSeconds)
      refuse(fmt::format("arrives {} s after the first request, the one before it came at {} s", since, last_),
             "sort the trace by arrival");
    return last_ = since;
  }

  std::optional<Request> request() {
    if (!o_.run.empty() && cell(run_field()) != o_.run) return std::nullopt;
    Request r;
    r.arrival = arrival();
    r.prompt = length(prompt_field());
    r.output = length(output_field());
    if (context_ <= 0 || r.prompt + r.output <= context_) return r;
    if (o_.overlong == Overlong::Refuse)
      refuse(fmt::format("{} and {} tokens do not fit into a context of {}", r.prompt, r.output, context_),
             "set `overlong` to `cut` or `leave_out`");
    ++overlong_;
    if (o_.overlong == Overlong::LeaveOut) return std::nullopt;
    r.prompt = std::min(r.prompt, context_ - 1);
    r.output = std::min(r.output, context_ - r.prompt);
    return r;
  }

  TrafficOptions o_;
  std::int64_t context_;
  std::ifstream in_;
  std::unique_ptr<Line> line_;
  std::string text_;
  int number_ = 0;
  std::int64_t made_ = 0, overlong_ = 0;
  std::optional<double> first_;
  double last_ = 0;
};

}  // namespace

std::unique_ptr<RequestSource> traced_requests(const TrafficOptions& options, std::int64_t context) {
  return std::make_unique<TracedRequests>(options, context);
}

}  // namespace orrery
