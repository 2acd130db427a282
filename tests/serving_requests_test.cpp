// SPDX-License-Identifier: Apache-2.0
// Requests from distributions and from files.
#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "sim/program/serving/histogram.hpp"
#include "sim/program/serving/request.hpp"
#include "tests/user_error.hpp"

using namespace orrery;

namespace {

struct Moments {
  double mean = 0, deviation = 0;
};
template <class F>
Moments moments(std::int64_t n, F&& draw) {
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = draw();
    sum += x;
    squares += x * x;
  }
  const double mean = sum / double(n);
  return {mean, std::sqrt(squares / double(n) - mean * mean)};
}

/// Mean and deviation of the gaps between arrivals.
Moments gaps(TrafficOptions o) {
  o.requests = 40000;
  const auto source = make_requests(o, 0);
  double last = source->next()->arrival;
  return moments(o.requests - 1, [&] {
    const double now = source->next()->arrival, gap = now - last;
    last = now;
    return gap;
  });
}

/// A file with this text that goes away.
class TextFile {
 public:
  explicit TextFile(std::string_view text) : path_{std::filesystem::temp_directory_path() / "orrery_requests_test"} {
    std::ofstream{path_} << text;
  }
  ~TextFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// All requests of a trace, or what is wrong with it without the name of the file.
std::vector<Request> read(std::string_view text, TrafficOptions o = {}, std::int64_t context = 100) {
  const TextFile file{text};
  o.trace = file.path();
  o.requests = 0;
  const auto source = make_requests(o, context);
  std::vector<Request> all;
  while (auto r = source->next()) all.push_back(*r);
  return all;
}
std::string wrong(std::string_view text, TrafficOptions o = {}) {
  std::string message = user_error([&] { read(text, o); });
  const std::string path = TextFile{""}.path();
  for (std::size_t at; (at = message.find(path)) != std::string::npos;) message.erase(at, path.size());
  return message;
}

}  // namespace

TEST_CASE("gaps between arrivals have the mean and the spread that were asked for", "[serving]") {
  TrafficOptions o;
  o.rate = 4;
  o.seed = 5;
  o.arrival = Arrival::Poisson;
  CHECK(gaps(o).mean == Approx(0.25).epsilon(0.02));
  CHECK(gaps(o).deviation == Approx(0.25).epsilon(0.03));
  o.arrival = Arrival::Even;
  CHECK(gaps(o).deviation == Approx(0).margin(1e-6));
  o.arrival = Arrival::Gamma;
  for (const double cv : {0.5, 2.0}) {
    o.cv = cv;
    CHECK(gaps(o).mean == Approx(0.25).epsilon(0.04));
    CHECK(gaps(o).deviation == Approx(0.25 * cv).epsilon(0.06));
  }
  o.arrival = Arrival::Bursty;
  o.burst = 5;
  o.period = Seconds{10};
  CHECK(gaps(o).mean == Approx(0.25).epsilon(0.03));
  CHECK(gaps(o).deviation > 0.3);  // wider than Poisson's
}

TEST_CASE("half of bursty requests come at the peak, which lasts 1/(2·burst) of a period", "[serving]") {
  TrafficOptions o;
  o.arrival = Arrival::Bursty;
  o.rate = 4, o.burst = 5, o.period = Seconds{10}, o.requests = 20000;
  const auto source = make_requests(o, 0);
  double peak = 0;
  while (const auto r = source->next()) peak += std::fmod(r->arrival, 10) < 1;
  CHECK(peak / 20000 == Approx(0.5).epsilon(0.03));
}

TEST_CASE("lengths have the distribution that was asked for", "[serving]") {
  Random random{3};
  const auto drawn = [&](const LengthOptions& o) {
    const LengthSampler sampler{o};
    return moments(40000, [&] { return double(sampler.draw(random)); });
  };
  CHECK(drawn({.kind = LengthKind::Fixed, .mean = 77}).deviation == 0);
  const Moments uniform = drawn({.kind = LengthKind::Uniform, .least = 1, .most = 101});
  CHECK(uniform.mean == Approx(51).epsilon(0.02));
  CHECK(uniform.deviation == Approx(std::sqrt((101.0 * 101 - 1) / 12)).epsilon(0.02));
  const Moments lognormal = drawn({.kind = LengthKind::Lognormal, .mean = 400, .deviation = 200});
  CHECK(lognormal.mean == Approx(400).epsilon(0.02));
  CHECK(lognormal.deviation == Approx(200).epsilon(0.05));
  const TextFile file{"10\n# a remark\n30\n"};
  const Moments empirical = drawn({.kind = LengthKind::Empirical, .file = file.path()});
  CHECK(empirical.mean == Approx(20).epsilon(0.02));
  CHECK(empirical.deviation == Approx(10).epsilon(0.01));
}

TEST_CASE("the same seed draws the same requests, another one others", "[serving]") {
  TrafficOptions o;
  o.prompt = {.kind = LengthKind::Lognormal, .mean = 100, .deviation = 50};
  const auto first = [&](std::int64_t seed) {
    o.seed = seed;
    const auto source = make_requests(o, 0);
    source->next();
    const Request r = *source->next();
    return std::pair{r.arrival, r.prompt};
  };
  CHECK(first(1) == first(1));
  CHECK(first(1) != first(2));
}

TEST_CASE("traces are read in what several tools write", "[serving]") {
  const auto check = [](const std::vector<Request>& all) {
    REQUIRE(all.size() == 2);
    CHECK(all[0].arrival == 0);  // counted from the first
    CHECK(all[1].arrival == Approx(0.5));
    CHECK(all[1].prompt == 20);
    CHECK(all[1].output == 7);
    CHECK(all[1].id == 1);
  };
  check(read("arrival_s,input_tokens,output_tokens\n3.0,10,5\n3.5,20,7\n"));
  check(read("num_decode_tokens,arrived_at,num_prefill_tokens\r\n5,3.0,10\r\n7,3.5,20\r\n"));
  check(
      read("{\"timestamp\": 3000, \"input_length\": 10, \"output_length\": 5}\n"
           "{\"timestamp\": 3500, \"input_length\": 20, \"output_length\": 7}\n"));
  TrafficOptions o;
  o.run = "b, quoted";
  check(read(
      "run_id,arrival,prompt_tokens,output_tokens\na,9,9,9\n\"b, quoted\",3,10,5\na,1,9,9\n\"b, quoted\",3.5,20,7\n",
      o));
}

TEST_CASE("what is no request is refused with its line", "[serving]") {
  const std::string head = "arrival_s,input_tokens,output_tokens\n";
  CHECK(wrong(head + "0,10,5\n2,10,5\n1,10,5\n") ==
        ":4:1: arrives 1 s after the first request, the one before it came at 2 s\n  1,10,5\n  ^\n"
        "  hint: sort the trace by arrival");
  CHECK(wrong(head + "0,-10,5\n").find(":2:1: prompt of -10 tokens") == 0);
  CHECK(wrong(head + "0,10,0\n").find(":2:1: output of 0 tokens") == 0);
  CHECK(wrong(head + "0,10.5,3\n").find("prompt of 10.5 tokens") != std::string::npos);
  CHECK(wrong(head + "0,1e300,3\n").find("prompt of 1e300 tokens") != std::string::npos);
  CHECK(wrong(head + "nan,10,3\n").find("arrival 'nan' is no number") != std::string::npos);
  CHECK(wrong(head + "0,10\n").find("2 cells under a head of 3") != std::string::npos);
  CHECK(wrong(head).find("has no requests") != std::string::npos);
  CHECK(wrong("\narrival_s,tokens\n0,1\n") ==
        ":2:1: no column for the prompt\n  arrival_s,tokens\n  ^\n"
        "  hint: it may be called input_tokens, prompt_tokens, num_prefill_tokens, input_length, ContextTokens");
  CHECK(wrong("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n{\"timestamp\": 1}\n")
            .find(":2:1: no key for the prompt\n") == 0);
  CHECK(wrong("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n{\n").find(":2:") == 0);
  CHECK(wrong(head + "0,90,20\n").find("90 and 20 tokens do not fit into a context of 100") != std::string::npos);
  TrafficOptions o;
  o.overlong = Overlong::Cut;
  CHECK(read(head + "0,90,20\n1,200,5\n", o)[1].prompt == 99);
  CHECK(read(head + "0,90,20\n1,200,5\n", o)[0].output == 10);
  o.overlong = Overlong::LeaveOut;
  CHECK(read(head + "0,90,20\n1,20,5\n", o).size() == 1);
}

TEST_CASE("a trace without line breaks is refused at its first megabyte", "[serving]") {
  const std::string message = wrong(std::string(std::size_t{3} << 20, '7'));
  CHECK(message.find(":1:1: a line of more than 1048576 bytes") == 0);
  CHECK(message.size() < 300);
  const std::string head = "arrival_s,input_tokens,output_tokens\n";
  CHECK(wrong(head + "0,10,5\n" + std::string((std::size_t{1} << 20) + 1, '1')).find(":3:1: a line of more") == 0);
  CHECK(wrong("{" + std::string(std::size_t{2} << 20, ' ')).find(":1:1: a line of more") == 0);
  CHECK(read(head + "0,10,5\n1,10,5").size() == 2);  // the last line may end with the file
}

TEST_CASE("quantiles of a histogram are within half a percent, its mean is exact", "[serving]") {
  Histogram h;
  for (int i = 1; i <= 100000; ++i) h.add(i * 1e-4);
  CHECK(h.mean() == Approx(5.00005));
  for (const double q : {0.01, 0.5, 0.9, 0.99}) CHECK(h.quantile(q) == Approx(10 * q).epsilon(0.005));
  CHECK(h.quantile(1) <= h.most());
  CHECK(h.most() == 10);
  CHECK(Histogram{}.quantile(0.5) == 0);
  Histogram once, often;
  for (const double v : {2.0, 2.0, 2.0, 5.0}) once.add(v);
  often.add(2, 3);
  often.add(5);
  CHECK(often.count() == 4);
  CHECK(often.mean() == once.mean());
  for (const double q : {0.1, 0.75, 0.76, 1.0}) CHECK(often.quantile(q) == once.quantile(q));
}
