// SPDX-License-Identifier: Apache-2.0
#include "sim/program/data.hpp"

#include <fmt/format.h>

#include "sim/base/error.hpp"
#include "sim/base/option_error.hpp"
#include "sim/strategy/workload.hpp"

namespace orrery {
namespace {

constexpr std::int32_t kIgnored = -100;
constexpr double kMaskedShare = 0.15;
constexpr std::uint64_t kFirstDocument = 1000;  // of the streams of a seed

}  // namespace

std::int64_t vocabulary_of(const Model& model) {
  const auto* t = std::get_if<Transformer>(&model.network);
  return t && t->tokens ? t->tokens->vocab : 0;
}

IdStream id_stream(const Dlrm& model, const std::vector<double>& id_skew, std::uint64_t seed) {
  if (id_skew.size() > 1 && id_skew.size() != model.tables.size())
    throw OptionError{{"train.id_skew"},
                      fmt::format("{} exponents for {} embedding tables", id_skew.size(), model.tables.size()),
                      "give one for each table, or one for all"};
  std::vector<CategoricalField> fields;
  for (std::size_t t = 0; t < model.tables.size(); ++t)
    fields.push_back({model.tables[t].vocab, id_skew.empty() ? 0 : id_skew[id_skew.size() == 1 ? 0 : t]});
  return {fields, seed};
}

DataSource::DataSource(const Model& model, std::vector<std::int32_t> tokens, std::uint64_t seed,
                       const std::vector<double>& id_skew)
    : model_{model}, tokens_{std::move(tokens)}, vocabulary_{vocabulary_of(model)}, seed_{seed}, random_{seed, 1} {
  for (std::int32_t t : tokens_)
    if (t < 0 || t >= vocabulary_)
      throw UserError{
          fmt::format("token {} is outside of the vocabulary of {}, which has {} tokens", t, model.name, vocabulary_),
          "use the tokenizer of the model"};
  if (id_skew.empty()) return;
  const auto* d = std::get_if<Dlrm>(&model.network);
  if (!d)
    throw OptionError{{"train.id_skew"},
                      fmt::format("{} has no embedding tables whose ids are drawn", model.name),
                      "leave out id_skew"};
  ids_ = id_stream(*d, id_skew, seed);
}

/// The look-ups of a sample are as many samples of the stream.
void DataSource::bags(const Dlrm& d, std::int64_t samples, std::vector<PortValues>& out) {
  const std::int64_t each = d.lookups_per_table;
  for (std::size_t t = 0; t < d.tables.size(); ++t)
    out.push_back(
        {fmt::format("bag.{}", t), ids_ ? std::vector<std::int32_t>{} : labels(samples * each, d.tables[t].vocab), {}});
  if (!ids_) return;
  std::vector<std::int64_t> rows(d.tables.size());
  for (std::int64_t i = 0; i < samples * each; ++i) {
    ids_->sample(samples_++, rows);
    for (std::size_t t = 0; t < rows.size(); ++t)
      out[out.size() - rows.size() + t].indices.push_back(
          static_cast<std::int32_t>(rows[t] - ids_->first_row(static_cast<std::int64_t>(t))));
  }
}

std::vector<std::int32_t> DataSource::window(std::int64_t length) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(length));
  if (tokens_.empty()) {
    for (auto& t : out) t = static_cast<std::int32_t>(random_.below(static_cast<std::uint64_t>(vocabulary_)));
    return out;
  }
  if (static_cast<std::int64_t>(tokens_.size()) < length)
    throw UserError{fmt::format("the text has {} tokens, a sample needs {}", tokens_.size(), length),
                    "use a longer text or a shorter sequence"};
  const std::uint64_t first = random_.below(tokens_.size() - static_cast<std::size_t>(length) + 1);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = tokens_[first + i];
  return out;
}

std::vector<double> DataSource::noise(std::int64_t count) {
  std::vector<double> out(static_cast<std::size_t>(count));
  for (double& v : out) v = random_.normal();
  return out;
}

std::vector<std::int32_t> DataSource::labels(std::int64_t count, std::int64_t classes) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(count));
  for (auto& l : out) l = static_cast<std::int32_t>(random_.below(static_cast<std::uint64_t>(classes)));
  return out;
}

void DataSource::pack(PackedSamples windows, std::vector<std::int64_t> samples) {
  windows_ = std::move(windows.windows);
  order_ = std::move(samples);
  next_window_ = 0;
}

std::vector<std::int32_t> DataSource::part_of(const DocumentPart& part) const {
  Random random{seed_, kFirstDocument + static_cast<std::uint64_t>(part.document)};
  std::vector<std::int32_t> out;
  if (tokens_.empty()) {
    for (std::int64_t i = 0; i < part.to; ++i)
      if (const auto t = random.below(static_cast<std::uint64_t>(vocabulary_)); i >= part.from)
        out.push_back(static_cast<std::int32_t>(t));
    return out;
  }
  const std::uint64_t first = random.below(tokens_.size());
  for (std::int64_t i = part.from; i < part.to; ++i)
    out.push_back(tokens_[(first + static_cast<std::uint64_t>(i)) % tokens_.size()]);
  return out;
}

/// Padding is token 0, each a document of its own.
void DataSource::packed(const Sizes& sizes, std::vector<PortValues>& out) {
  const auto rows = static_cast<std::size_t>(sizes.samples * sizes.sequence);
  std::vector<std::int32_t> tokens(rows), next(rows, kIgnored), first_keys(rows), positions(rows);
  const auto offset = static_cast<std::int32_t>(std::get<Transformer>(model_.network).position_offset);
  for (const std::int64_t sample : order_) {
    const PackedWindow& window = windows_[next_window_++ % windows_.size()];
    const auto begin = static_cast<std::size_t>(sample * sizes.sequence);
    std::int64_t place = 0;
    const auto add = [&](const std::vector<std::int32_t>& part) {
      const std::int64_t first = place;
      for (std::size_t i = 0; i < part.size(); ++i, ++place) {
        const std::size_t row = begin + static_cast<std::size_t>(place);
        tokens[row] = part[i];
        if (i + 1 < part.size()) next[row] = part[i + 1];
        first_keys[row] = static_cast<std::int32_t>(first);
        positions[row] = offset + static_cast<std::int32_t>(i);
      }
    };
    for (const DocumentPart& part : window) add(part_of(part));
    while (place < sizes.sequence) add({0});
  }
  out.push_back({"tokens", std::move(tokens), {}});
  out.push_back({"targets", std::move(next), {}});
  out.push_back({"first_keys", std::move(first_keys), {}});
  out.push_back({"positions", std::move(positions), {}});
}

void DataSource::causal(const Sizes& sizes, Targets targets, std::vector<PortValues>& out) {
  if (!windows_.empty()) return packed(sizes, out);
  PortValues tokens{"tokens", {}, {}}, next{"targets", {}, {}};
  for (std::int64_t b = 0; b < sizes.samples; ++b) {
    const auto w = window(sizes.sequence + (targets == Targets::With ? 1 : 0));
    tokens.indices.insert(tokens.indices.end(), w.begin(), w.begin() + sizes.sequence);
    if (targets == Targets::With) next.indices.insert(next.indices.end(), w.begin() + 1, w.end());
  }
  out.push_back(std::move(tokens));
  if (targets == Targets::With) out.push_back(std::move(next));
}

void DataSource::masked(const Sizes& sizes, Targets targets, std::vector<PortValues>& out) {
  PortValues tokens{"tokens", {}, {}}, hidden{"targets", {}, {}};
  for (std::int64_t b = 0; b < sizes.samples; ++b)
    for (std::int32_t t : window(sizes.sequence)) {
      const bool mask = targets == Targets::With && random_.uniform() < kMaskedShare;
      tokens.indices.push_back(mask ? static_cast<std::int32_t>(vocabulary_ - 1) : t);
      hidden.indices.push_back(mask ? t : kIgnored);
    }
  out.push_back(std::move(tokens));
  if (targets == Targets::With) out.push_back(std::move(hidden));
}

/// The decoder reads the continuation shifted by one behind a start token (id 0) and learns to give it.
void DataSource::paired(const Sizes& sizes, Targets targets, std::vector<PortValues>& out) {
  PortValues tokens{"tokens", {}, {}}, decoder{"decoder_tokens", {}, {}}, next{"targets", {}, {}};
  for (std::int64_t b = 0; b < sizes.samples; ++b) {
    const auto w = window(sizes.sequence + sizes.target_sequence);
    tokens.indices.insert(tokens.indices.end(), w.begin(), w.begin() + sizes.sequence);
    decoder.indices.push_back(0);
    decoder.indices.insert(decoder.indices.end(), w.begin() + sizes.sequence, w.end() - 1);
    next.indices.insert(next.indices.end(), w.begin() + sizes.sequence, w.end());
  }
  out.push_back(std::move(tokens));
  out.push_back(std::move(decoder));
  if (targets == Targets::With) out.push_back(std::move(next));
}

std::vector<PortValues> DataSource::batch(const Sizes& sizes, Targets targets) {
  std::vector<PortValues> out;
  const std::int64_t n = sizes.samples;
  if (const auto* d = std::get_if<Dlrm>(&model_.network)) {
    out.push_back({"dense", {}, noise(n * d->dense_features)});
    bags(*d, n, out);
    if (targets == Targets::With) {
      const auto clicks = labels(n, 2);
      out.push_back({"targets", {}, {clicks.begin(), clicks.end()}});
    }
    return out;
  }
  const auto images = [&](std::int64_t channels, std::int64_t side, std::int64_t classes) {
    out.push_back({"images", {}, noise(n * channels * side * side)});
    if (targets == Targets::With) out.push_back({"targets", labels(n, classes), {}});
  };
  if (const auto* s = std::get_if<Swin>(&model_.network)) {
    images(s->channels, s->image_size, s->classifier.out);
    return out;
  }
  const auto& t = std::get<Transformer>(model_.network);
  if (t.patches)
    images(t.channels, t.image_size, t.output.out);
  else if (t.head == Head::Classifier) {
    causal(sizes, Targets::Without, out);
    if (targets == Targets::With) out.push_back({"targets", labels(n, t.output.out), {}});
  } else if (t.decoder.empty())
    masked(sizes, targets, out);
  else if (!t.encoder.empty())
    paired(sizes, targets, out);
  else
    causal(sizes, targets, out);
  return out;
}

std::vector<std::int32_t> prompts_of(const Model& model, const GenerateOptions& o, std::vector<std::int32_t> given) {
  if (given.empty())
    given = DataSource{model, {}, static_cast<std::uint64_t>(o.seed)}
                .batch({o.batch, o.prompt, 1}, Targets::Without)
                .front()
                .indices;
  if (std::ssize(given) != o.batch * o.prompt)
    throw UserError{fmt::format("the prompt has {} tokens, batch {} times prompt {} needs {}", given.size(), o.batch,
                                o.prompt, o.batch * o.prompt)};
  return given;
}

}  // namespace orrery
