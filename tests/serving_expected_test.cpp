// SPDX-License-Identifier: Apache-2.0
// SGLang lets requests in by what running ones are expected to generate, and takes them back.
#include <catch2/catch.hpp>

#include "tests/scheduler_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

/// Pages of one token, so that every token counts.
Scheduler sglang(std::int64_t pool, double conservativeness = 1, bool known_lengths = false) {
  ReplicaOptions o = replica("sglang", 8, 64);
  o.block = 1;
  o.conservativeness = conservativeness;
  o.known_lengths = known_lengths;
  o.prefix_sharing = false;
  return Scheduler{o, {.device = pool, .host = 0, .tokens = 1}};
}

/// Whether the second request is read behind the first one's prompt, in a pool of 100 tokens.
bool joins(Scheduler s, const Request& first, const Request& second) {
  s.submit(first);
  s.end(s.begin());
  s.submit(second);
  return s.begin().shape.prompts == 1;
}

}  // namespace

TEST_CASE("sglang lets in who fits beside what others are expected to generate yet", "[serving]") {
  // The first holds 10 and has 39 of 40 to go, of which 0.7 are expected: 100 − 10 − 27.3 = 62.7 are left.
  CHECK(joins(sglang(100), request(0, 10, 40), request(1, 20, 41)));        // 20 + 41 + 1 = 62
  CHECK_FALSE(joins(sglang(100), request(0, 10, 40), request(1, 20, 42)));  // 63
  // Of 0.35: 100 − 10 − 13.65 = 76.35. No more than all: 100 − 10 − 39 = 51.
  CHECK(joins(sglang(100, 0.5), request(0, 10, 40), request(1, 20, 55)));
  CHECK_FALSE(joins(sglang(100, 0.5), request(0, 10, 40), request(1, 20, 56)));
  CHECK(joins(sglang(100, 9), request(0, 10, 40), request(1, 20, 29)));
  CHECK_FALSE(joins(sglang(100, 9), request(0, 10, 40), request(1, 20, 30)));
  // No answer counts for more than 4096 tokens: 10000 − 10 − 0.7 · 4096 = 7122.8.
  CHECK(joins(sglang(10000), request(0, 10, 9000), request(1, 20, 7101)));
  // The whole answer of who is let in for the same step is kept free: 100 − 10 − 40 = 50.
  Scheduler s = sglang(100);
  s.submit(request(0, 10, 40));
  s.submit(request(1, 10, 38));  // 10 + 38 + 1 = 49; then 40 − 38 = 2 are left
  s.submit(request(2, 1, 1));
  CHECK(rows_of(s.begin()) == "0:10 1:10");
}

TEST_CASE("sglang looks for others a step after it has found somebody gone", "[serving]") {
  Scheduler s = sglang(60);
  s.submit(request(0, 10, 2));
  s.submit(request(1, 10, 20));
  s.submit(request(2, 20, 10));  // 60 − 20 − 22 are fewer than 20 + 10 + 1
  // Behind the second step 48 are left, of which 0.7 · 17 are expected to be needed.
  CHECK(rows_of(s.begin()) == "0:10 1:10");
  Scheduler t = sglang(60);
  for (const Request& r : {request(0, 10, 2), request(1, 10, 20), request(2, 20, 10)}) t.submit(r);
  std::vector<std::string> steps = steps_of(t);
  steps.resize(5);
  CHECK(steps == std::vector<std::string>{"0:10 1:10", "0:1 1:1", "1:1", "2:20", "1:1 2:1"});
}

TEST_CASE("sglang takes those back that have generated least, then those with the longest prompts", "[serving]") {
  using Steps = std::vector<std::string>;
  const auto repeat = [](Steps& all, int times, std::string_view step) {
    all.insert(all.end(), times, std::string{step});
  };
  // Next to nothing is expected of answers: 5 + 11 + 1 fit beside 4 tokens. 24 are held up to 9 + 2 · 7 = 23.
  Scheduler even = sglang(24, 0.01);
  even.submit(request(0, 4, 12));
  even.end(even.begin());
  even.submit(request(1, 5, 11));
  // Both have generated 8. The first has 4 to go; 13 + 3 + 1 of the second fit when it is gone.
  Steps expected{"1:5"};
  repeat(expected, 7, "0:1 1:1");
  repeat(expected, 4, "0:1");
  expected.emplace_back("1:13");
  repeat(expected, 2, "1:1");
  CHECK(steps_of(even) == expected);
  CHECK(even.preemptions() == 1);
  CHECK(even.load() == 0);
  CHECK(even.blocks().held() == 0);
  // Here the second comes two steps later, with the shorter prompt: 11 + 2 · 6 = 23 are held, 9 and 7 are generated.
  Scheduler late = sglang(24, 0.01);
  late.submit(request(0, 5, 11));
  for (int i = 0; i < 3; ++i) late.end(late.begin());
  late.submit(request(1, 4, 11));
  expected = {"1:4"};
  repeat(expected, 6, "0:1 1:1");
  repeat(expected, 2, "0:1");
  expected.emplace_back("1:11");
  repeat(expected, 3, "1:1");
  CHECK(steps_of(late) == expected);
}

TEST_CASE("sglang expects less with each step of decoding, and more when requests had to be taken back", "[serving]") {
  ExpectedLengths lengths{replica("sglang")};
  CHECK(lengths.ratio() == Approx(0.7));
  lengths.step_decoded();
  CHECK(lengths.ratio() == Approx(0.7 - 0.7 * 0.86 / 600));
  for (int i = 0; i < 1000; ++i) lengths.step_decoded();
  CHECK(lengths.ratio() == Approx(0.7 * 0.14));
  // 5 and 3 tokens, 20 more each, of 100 and 50, and one more.
  Sequence a{.request = request(0, 4, 100), .generated = 5}, b{.request = request(1, 4, 50), .generated = 3};
  std::vector<Sequence*> both{&a, &b};
  lengths.taken_back(both);
  CHECK(lengths.ratio() == Approx(48.0 / 151));
  b.request.output = 1;
  a.request.output = 1;
  lengths.taken_back(both);
  CHECK(lengths.ratio() == 1);
  lengths.begin_anew();
  CHECK(lengths.ratio() == Approx(0.7));
}

TEST_CASE("where lengths are known sglang lets in who fits until the last is done", "[serving]") {
  const auto known = [] { return sglang(100, 1, true); };
  // 9 and 50 to go: 60 − 10 − 2 · 9 = 32 are left when the first ends, 60 − 10 + 41 − 50 = 41 when the second does;
  // of expected lengths 10 + 50 + 1 do not fit into 100 − 40 − 0.7 · 9.
  CHECK(joins(known(), request(0, 40, 10), request(1, 10, 50)));
  CHECK_FALSE(joins(sglang(100), request(0, 40, 10), request(1, 10, 50)));
  // The first alone needs all of the pool but one token: 90 − 20 + 20 − 89 = 1 is no spare one.
  CHECK_FALSE(joins(known(), request(0, 10, 90), request(1, 20, 3)));
  CHECK(joins(sglang(100), request(0, 10, 90), request(1, 20, 3)));
  // Both end together: 90 − 20 − 2 · 33 = 4 leave a token and more for each, 2 · 34 do not.
  CHECK(joins(known(), request(0, 10, 34), request(1, 20, 33)));
  CHECK_FALSE(joins(known(), request(0, 10, 35), request(1, 20, 34)));
}
