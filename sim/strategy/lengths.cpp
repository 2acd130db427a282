// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/lengths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "sim/base/error.hpp"
#include "sim/strategy/packing/corpus.hpp"

namespace orrery {

std::vector<std::int64_t> read_lengths(const std::string& path) {
  std::ifstream in{path};
  if (!in) throw UserError{fmt::format("cannot read the lengths in {}", in_quotes(path)), "give one length a line"};
  std::vector<std::int64_t> all;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    char* end = nullptr;
    const long long value = std::strtoll(line.c_str(), &end, 10);
    if (end == line.c_str() || (*end != '\0' && *end != '\r') || value < 1)
      throw UserError{Diagnostic{fmt::format("{} is no length", in_quotes(line)), "lengths are whole numbers from 1 on",
                                 path, number, 1, line}};
    all.push_back(value);
  }
  if (all.empty()) throw UserError{fmt::format("{} has no lengths", in_quotes(path)), "give one length a line"};
  return all;
}

LengthSampler::LengthSampler(const LengthOptions& o) : options_{o} {
  if (o.kind == LengthKind::Uniform && o.most < o.least)
    throw UserError{fmt::format("lengths from {} to {}", o.least, o.most), "set `most` to at least `least`"};
  if (o.kind != LengthKind::Empirical && !o.file.empty())
    throw UserError{
        fmt::format("lengths of the kind {} are drawn, and not from {}", enum_name(o.kind), in_quotes(o.file)),
        "use kind: empirical, or leave out the file"};
  if (o.kind == LengthKind::Empirical) values_ = read_lengths(o.file);
}

std::int64_t LengthSampler::draw(Random& random) const {
  double value = options_.mean;
  switch (options_.kind) {
    case LengthKind::Fixed:
      break;
    case LengthKind::Uniform:
      return options_.least +
             static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(options_.most - options_.least + 1)));
    case LengthKind::Lognormal: {
      const double ratio = options_.deviation / options_.mean, s2 = std::log1p(ratio * ratio);
      value = options_.mean * std::exp(random.normal(-s2 / 2, std::sqrt(s2)));
      break;
    }
    case LengthKind::DataSculptTokens:
      value = double(datasculpt_length(ShareOf::Tokens, random));
      break;
    case LengthKind::DataSculptDocuments:
      value = double(datasculpt_length(ShareOf::Documents, random));
      break;
    case LengthKind::Empirical:
      value = double(values_[random.below(values_.size())]);
      break;
  }
  const auto length = std::max(options_.least, static_cast<std::int64_t>(std::llround(std::min(value, 1e12))));
  return options_.most > 0 ? std::min(options_.most, length) : length;
}

double LengthSampler::mean() const {
  if (options_.kind == LengthKind::Uniform) return 0.5 * double(options_.least + options_.most);
  if (options_.kind == LengthKind::DataSculptTokens) return datasculpt_mean(ShareOf::Tokens);
  if (options_.kind == LengthKind::DataSculptDocuments) return datasculpt_mean(ShareOf::Documents);
  if (options_.kind != LengthKind::Empirical) return options_.mean;
  double sum = 0;
  for (const std::int64_t v : values_) sum += double(v);
  return sum / double(values_.size());
}

}  // namespace orrery
