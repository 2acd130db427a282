// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace orrery {

struct Diagnostic;

/// A quantity of dimension bytes^B · seconds^S · flops^F, stored in base units (B, s, FLOP).
/// Products and quotients compute their dimension; a dimensionless result is a plain double.
template <int B, int S, int F>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double base_units) : v_{base_units} {}

  /// The number in base units. For printing and fitting; arithmetic stays in quantities.
  constexpr double base() const { return v_; }

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator-() const { return Quantity{-v_}; }
  constexpr Quantity& operator+=(Quantity o) {
    v_ += o.v_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    v_ -= o.v_;
    return *this;
  }
  constexpr Quantity& operator*=(double k) {
    v_ *= k;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, double k) { return Quantity{a.v_ * k}; }
  friend constexpr Quantity operator*(double k, Quantity a) { return Quantity{a.v_ * k}; }
  friend constexpr Quantity operator/(Quantity a, double k) { return Quantity{a.v_ / k}; }

 private:
  double v_ = 0;
};

/// The type of a product or quotient: a Quantity, or double when every exponent is zero.
template <int B, int S, int F>
constexpr auto make_quantity(double base_units) {
  if constexpr (B == 0 && S == 0 && F == 0)
    return base_units;
  else
    return Quantity<B, S, F>{base_units};
}

template <int B, int S, int F, int B2, int S2, int F2>
constexpr auto operator/(Quantity<B, S, F> a, Quantity<B2, S2, F2> b) {
  return make_quantity<B - B2, S - S2, F - F2>(a.base() / b.base());
}
template <int B, int S, int F, int B2, int S2, int F2>
constexpr auto operator*(Quantity<B, S, F> a, Quantity<B2, S2, F2> b) {
  return make_quantity<B + B2, S + S2, F + F2>(a.base() * b.base());
}
template <int B, int S, int F>
constexpr auto operator/(double a, Quantity<B, S, F> b) {
  return make_quantity<-B, -S, -F>(a / b.base());
}

using Bytes = Quantity<1, 0, 0>;
using Seconds = Quantity<0, 1, 0>;
using Flops = Quantity<0, 0, 1>;  // an amount of work, never a rate
using BytesPerSecond = Quantity<1, -1, 0>;
using FlopsPerSecond = Quantity<0, -1, 1>;
using FlopsPerByte = Quantity<-1, 0, 1>;
using PerSecond = Quantity<0, -1, 0>;

inline namespace literals {
constexpr Bytes operator""_B(long double v) { return Bytes{double(v)}; }
constexpr Bytes operator""_KB(long double v) { return Bytes{double(v) * 1e3}; }
constexpr Bytes operator""_MB(long double v) { return Bytes{double(v) * 1e6}; }
constexpr Bytes operator""_GB(long double v) { return Bytes{double(v) * 1e9}; }
constexpr Bytes operator""_KiB(long double v) { return Bytes{double(v) * 1024.0}; }
constexpr Bytes operator""_MiB(long double v) { return Bytes{double(v) * 1048576.0}; }
constexpr Bytes operator""_GiB(long double v) { return Bytes{double(v) * 1073741824.0}; }
constexpr Seconds operator""_s(long double v) { return Seconds{double(v)}; }
constexpr Seconds operator""_ms(long double v) { return Seconds{double(v) * 1e-3}; }
constexpr Seconds operator""_us(long double v) { return Seconds{double(v) * 1e-6}; }
constexpr Seconds operator""_ns(long double v) { return Seconds{double(v) * 1e-9}; }
constexpr Flops operator""_FLOP(long double v) { return Flops{double(v)}; }
constexpr Flops operator""_GFLOP(long double v) { return Flops{double(v) * 1e9}; }
constexpr Flops operator""_TFLOP(long double v) { return Flops{double(v) * 1e12}; }
constexpr BytesPerSecond operator""_GBps(long double v) { return BytesPerSecond{double(v) * 1e9}; }
constexpr BytesPerSecond operator""_TBps(long double v) { return BytesPerSecond{double(v) * 1e12}; }
constexpr FlopsPerSecond operator""_GFLOPps(long double v) { return FlopsPerSecond{double(v) * 1e9}; }
constexpr FlopsPerSecond operator""_TFLOPps(long double v) { return FlopsPerSecond{double(v) * 1e12}; }
}  // namespace literals

static_assert(std::is_same_v<decltype(1.0_GB / 1.0_GBps), Seconds>);
static_assert(std::is_same_v<decltype(1.0_GB / 1.0_MB), double>);

/// An instant on the engine's clock: an integer count of picoseconds since the start (106 days fit).
/// `SimTime + Seconds` is the only place where a duration is rounded, to nearest. Two SimTime never add.
class SimTime {
 public:
  constexpr SimTime() = default;
  constexpr explicit SimTime(std::int64_t picoseconds) : ps_{picoseconds} {}
  constexpr std::int64_t picoseconds() const { return ps_; }
  constexpr auto operator<=>(const SimTime&) const = default;
  friend constexpr SimTime operator+(SimTime t, Seconds d) {
    return SimTime{t.ps_ + static_cast<std::int64_t>(d.base() * 1e12 + (d.base() < 0 ? -0.5 : 0.5))};
  }
  friend constexpr Seconds operator-(SimTime a, SimTime b) { return Seconds{double(a.ps_ - b.ps_) * 1e-12}; }

 private:
  std::int64_t ps_ = 0;
};

/// The bytes rounded up to a multiple of `page`.
constexpr Bytes ceil_to(Bytes size, Bytes page) {
  const auto p = static_cast<std::int64_t>(page.base());
  const auto n = static_cast<std::int64_t>(size.base());
  return Bytes{static_cast<double>((n + p - 1) / p * p)};
}

/// Which quantity it is, as a value.
struct Dimension {
  int bytes, seconds, flops;
  constexpr bool operator==(const Dimension&) const = default;
};
template <int B, int S, int F>
constexpr Dimension dimension_of(Quantity<B, S, F>) {
  return {B, S, F};
}

/// Three significant digits with a suffix ("61.4 ms", "23.1 GiB", "989 TFLOP/s"), for people; the one printing
/// function.
std::string to_text(Bytes v);
std::string to_text(Seconds v);
std::string to_text(Flops v);
std::string to_text(BytesPerSecond v);
std::string to_text(FlopsPerSecond v);
std::string to_text(PerSecond v);
std::string to_text(FlopsPerByte v);

/// The shortest text that reads back as exactly the same quantity ("1500 GB/s"), for files.
std::string to_exact_text(Bytes v);
std::string to_exact_text(Seconds v);
std::string to_exact_text(Flops v);
std::string to_exact_text(BytesPerSecond v);
std::string to_exact_text(FlopsPerSecond v);
std::string to_exact_text(PerSecond v);
std::string to_exact_text(FlopsPerByte v);
std::string to_exact_text(double base_units, Dimension dimension);

/// The number that is the whole text ("12", "-0.5", "1e9"); nothing for any other text, infinities and NaN.
std::optional<double> parse_number(std::string_view text);

/// The dimension of a quantity as a word ("a size in bytes"), and one example with a suffix ("80 GiB"), for messages.
std::string_view dimension_name(Dimension d);
std::string_view dimension_example(Dimension d);

/// Reads "80 GiB", "3.35 TB/s", "400 Gb/s", "2.5 us", "989 TFLOP/s", "1.7 GHz" in base units of the dimension.
/// GB is 10^9, GiB is 2^30, Gb is 10^9 bit. Throws UserError (message and hint, no place) when the text has no suffix,
/// an unknown one, one of another dimension, or a number that is not finite.
double parse_quantity(std::string_view text, Dimension dimension);
/// The same for readers that collect problems: nothing, with message and hint in `problem`, where the other one throws.
std::optional<double> parse_quantity(std::string_view text, Dimension dimension, Diagnostic& problem);

template <class Q>
Q parse(std::string_view text) {
  return Q{parse_quantity(text, dimension_of(Q{}))};
}

}  // namespace orrery
