// SPDX-License-Identifier: Apache-2.0
#include "sim/base/units.hpp"

#include <catch2/catch.hpp>

#include <cmath>

#include "sim/base/random.hpp"
#include "sim/base/whole_number.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::literals;

TEST_CASE("products and quotients compute their dimension", "[base][units]") {
  CHECK((1.0_GB / 2.0_GBps).base() == 0.5);        // 1e9 B / 2e9 B/s
  CHECK((3.0_TBps * 2.0_us).base() == 6e6);        // 3e12 B/s · 2e-6 s
  CHECK(1.0_GB / 1.0_MB == 1000.0);                // a plain double
  CHECK((100.0_TFLOPps / 2.0_TBps).base() == 50);  // FLOP per byte
  CHECK((1.0 / 4.0_s).base() == 0.25);
}

TEST_CASE("a time plus a duration rounds to the nearest picosecond", "[base][units]") {
  CHECK((SimTime{} + Seconds{1.4e-12}).picoseconds() == 1);
  CHECK((SimTime{} + Seconds{1.6e-12}).picoseconds() == 2);
  CHECK((SimTime{10} + Seconds{-1.6e-12}).picoseconds() == 8);
  CHECK((SimTime{2'000'000} - SimTime{}).base() == Approx(2e-6));
}

TEST_CASE("a whole number is all of a text, and fits its type", "[base][units]") {
  CHECK(whole_number<std::int64_t>("-12") == -12);
  CHECK(whole_number<std::uint16_t>("65535") == 65535);
  CHECK_FALSE(whole_number<std::uint16_t>("65536"));
  CHECK_FALSE(whole_number<std::uint64_t>("-1"));
  for (const char* text : {"", " 1", "1 ", "+1", "1.0", "1e3", "0x10", "9223372036854775808"}) {
    CAPTURE(text);
    CHECK_FALSE(whole_number<std::int64_t>(text));
  }
}

TEST_CASE("bytes are rounded up to whole pages", "[base][units]") {
  CHECK(ceil_to(1.0_B, 512.0_B) == 512.0_B);
  CHECK(ceil_to(512.0_B, 512.0_B) == 512.0_B);
  CHECK(ceil_to(0.0_B, 512.0_B) == 0.0_B);
}

TEST_CASE("GB is 10^9, GiB is 2^30, Gb is 10^9 bits", "[base][units]") {
  CHECK(parse<Bytes>("1 GB").base() == 1e9);
  CHECK(parse<Bytes>("1 GiB").base() == 1073741824.0);
  CHECK(parse<Bytes>("8 Gb").base() == 1e9);
  CHECK(parse<BytesPerSecond>("400 Gb/s").base() == 50e9);
  CHECK(parse<BytesPerSecond>("3.35 TB/s").base() == 3.35e12);
}

TEST_CASE("a file and a literal of the same text are the same double", "[base][units]") {
  CHECK(parse<Seconds>("2.5 us") == 2.5_us);
  CHECK(parse<Seconds>("7 ns") == 7.0_ns);
  CHECK(parse<Seconds>("61.4 ms") == 61.4_ms);
  CHECK(parse<FlopsPerSecond>("989 TFLOP/s") == 989.0_TFLOPps);
  CHECK(parse<Bytes>("0.1 GB") == 0.1_GB);
}

TEST_CASE("a quantity may omit the space, carry a sign, an exponent and spaces around", "[base][units]") {
  CHECK(parse<Bytes>("80GiB") == 80.0_GiB);
  CHECK(parse<Bytes>("  -1.5e3 B ").base() == -1500);
  CHECK(parse<Seconds>("3 \u00B5s") == 3.0_us);
  CHECK(parse<Seconds>("2 h").base() == 7200);
  CHECK(parse<PerSecond>("1.7 GHz").base() == 1.7e9);
  CHECK(parse<PerSecond>("12 /s").base() == 12);
  CHECK(parse<FlopsPerByte>("295 FLOP/B").base() == 295);
}

TEST_CASE("a bare number proposes units", "[base][units][error]") {
  CHECK(user_error([] { parse<BytesPerSecond>("3350"); }) ==
        "a bandwidth needs a unit\n"
        "  hint: \"3350 GB/s\" (10^9 bytes per second) or \"3350 Gb/s\" (10^9 bits per second)");
  CHECK(user_error([] { parse<FlopsPerByte>("3"); }) ==
        "an arithmetic intensity needs a unit\n  hint: \"3 FLOP/B\" (operations per byte)");
}

TEST_CASE("an unknown unit proposes the nearest", "[base][units][error]") {
  CHECK(user_error([] { parse<Seconds>("3 uss"); }) ==
        "unknown unit 'uss'\n"
        "  hint: did you mean 'us'? a duration takes one of ps, ns, us, ms, s, min, h, d, \u00B5s, \u03BCs");
  CHECK(user_error([] { parse<PerSecond>("3 lightyears"); }) ==
        "unknown unit 'lightyears'\n  hint: a frequency takes one of Hz, kHz, MHz, GHz, /s");
}

TEST_CASE("a unit of another dimension is refused", "[base][units][error]") {
  CHECK(user_error([] { parse<PerSecond>("3 GB"); }) ==
        "'3 GB' is a size in bytes, not a frequency\n  hint: a frequency takes one of Hz, kHz, MHz, GHz, /s");
}

TEST_CASE("what is not a finite number is refused", "[base][units][error]") {
  const std::string hint = "\n  hint: a finite number and a unit, for example \"80 GiB\"";
  for (const std::string text : {"", "GB", "nan GB", "inf GB", "1..2 GB", "1e999 GB", "- 1 GB", "+1 GB"})
    CHECK(user_error([&] { parse<Bytes>(text); }) == "'" + text + "' is not a size in bytes" + hint);
  CHECK(user_error([] { parse<Bytes>("1e308 GB"); }) == "'1e308 GB' is too large");
}

TEST_CASE("people read three significant digits", "[base][units]") {
  CHECK(to_text(61.4_ms) == "61.4 ms");
  CHECK(to_text(Seconds{0.9996}) == "1 s");  // 999.6 ms would round to 1000 ms
  CHECK(to_text(Seconds{90000.0}) == "25 h");
  CHECK(to_text(Seconds{}) == "0 s");
  CHECK(to_text(23.1_GiB) == "23.1 GiB");
  CHECK(to_text(1.0_KiB) == "1 KiB");
  CHECK(to_text(1020.0_MiB) == "1020 MiB");
  CHECK(to_text(-1.0_KiB) == "-1 KiB");
  CHECK(to_text(8.589934592_GFLOP) == "8.59 GFLOP");
  CHECK(to_text(3.35_TBps) == "3.35 TB/s");
  CHECK(to_text(989.0_TFLOPps) == "989 TFLOP/s");
  CHECK(to_text(PerSecond{1.7e9}) == "1.7 GHz");
  CHECK(to_text(FlopsPerByte{295.4}) == "295 FLOP/B");
}

TEST_CASE("files get the shortest text that reads back exactly", "[base][units]") {
  CHECK(to_exact_text(80.0_GiB) == "80 GiB");
  CHECK(to_exact_text(64.0_MB) == "64 MB");
  CHECK(to_exact_text(BytesPerSecond{1.5e12}) == "1.5 TB/s");
  CHECK(to_exact_text(500.0_ms) == "500 ms");
  CHECK(to_exact_text(Bytes{}) == "0 B");
  CHECK(to_exact_text(989.0_TFLOPps) == "989 TFLOP/s");
  CHECK(to_exact_text(2.0_GFLOP) == "2 GFLOP");
  CHECK(to_exact_text(PerSecond{1.7e9}) == "1.7 GHz");
  CHECK(to_exact_text(FlopsPerByte{0.5}) == "0.5 FLOP/B");
}

TEST_CASE("any quantity survives a file", "[base][units]") {
  Random random{42};
  INFO("seed 42");
  for (int i = 0; i < 20000; ++i) {
    const double v = random.normal() * std::pow(10.0, random.uniform(-15, 18));
    CHECK(parse<Bytes>(to_exact_text(Bytes{v})).base() == v);
    CHECK(parse<Seconds>(to_exact_text(Seconds{v})).base() == v);
    CHECK(parse<FlopsPerSecond>(to_exact_text(FlopsPerSecond{v})).base() == v);
  }
}
