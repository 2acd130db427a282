// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "sim/app/commands.hpp"
#include "sim/app/report.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/base/table.hpp"
#include "sim/model/tokenizer.hpp"
#include "sim/strategy/lengths.hpp"
#include "sim/strategy/packing/datasculpt.hpp"
#include "sim/strategy/packing/documents.hpp"
#include "sim/strategy/packing/packing.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kDrawnTokens = 10'000'000;

struct PackedRow {
  PackerKind packer;
  PackingStatistics statistics;
};

class Pack final : public Command {
 public:
  std::string_view name() const override { return "pack"; }
  std::string_view summary() const override {
    return "documents into windows of a length: what ways to pack them cut, pad, and leave attention to do";
  }
  std::string_view arguments() const override { return "[FILE…]"; }
  Arity arity() const override { return {0, 100'000}; }

  std::vector<Flag> flags() override {
    return {
        {"--window", "N", "tokens of a window; default 4096",
         [this](const std::string& v) { request_.window = integer_option("--window", v, 1); }},
        {"--packer", "NAME", "one of those below; repeatable; left out: all",
         [this](const std::string& v) { packers_.push_back(packer_named(v)); }},
        {"--lengths", "WHAT", "lengths of documents in place of files, see below",
         [this](const std::string& v) { lengths_ = v; }},
        {"--tokens", "N", "how many tokens of documents are drawn; default 10 million",
         [this](const std::string& v) { tokens_ = integer_option("--tokens", v, 1); }},
        {"--paragraphs", "", "what lies between blank lines of a file is a document",
         [this](const std::string&) { unit_ = DocumentUnit::Paragraph; }},
        {"--tokenizer", "FILE", "tokenizer.json, or a folder that holds one; left out: each byte is a token",
         [this](const std::string& v) { tokenizer_ = v; }},
        {"--ranks", "N", "ranks among which the windows of a step are divided; default 1",
         [this](const std::string& v) { request_.ranks = integer_option("--ranks", v, 1); }},
        {"--per-rank", "N", "windows of a rank in a step; default 1",
         [this](const std::string& v) { request_.per_rank = integer_option("--per-rank", v, 1); }},
        {"--seed", "N", "of what is drawn or shuffled; default 1",
         [this](const std::string& v) { request_.seed = static_cast<std::uint64_t>(integer_option("--seed", v, 0)); }},
    };
  }
  std::string details() const override {
    return "A FILE is a document; of one in .jsonl each line is, by its `text` or `content`. --lengths takes a file "
           "with\n"
           "one length a line, or a distribution: '{kind: lognormal, mean: 1500, deviation: 4000}', or the corpus of\n"
           "arXiv 2409.00997 with its histogram read either way, {kind: datasculpt_tokens} and "
           "{kind: datasculpt_documents}.\n\n"
           "Packers:\n"
           "  concatenate  one document behind another, cut where windows end\n"
           "  shuffle      the same with documents, in pieces of at most a window, in random order\n"
           "  alone        each piece in a window of its own\n"
           "  largest_fit  longest first, into the window with the most room; what overflows is lost\n"
           "  best_fit     longest first, into the fullest window that has room\n"
           "  datasculpt   largest_fit among documents that are alike; needs texts. Vectors are counts of hashed "
           "words,\n"
           "               not those of a network as in the paper\n"
           "  balanced     best_fit, with windows that cost attention alike in one step\n";
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const std::vector<std::int64_t> lengths = lengths_of(arguments);
    std::vector<PackedRow> rows;
    for (const PackerKind packer : chosen()) {
      context.interrupt.check();
      context.console.progress(enum_name(packer), 0);
      request_.packer = packer;
      rows.push_back({packer, statistics_of(pack(request_, lengths), lengths, request_)});
    }
    context.console.end_progress();
    context.console.out(context.json ? document(lengths, rows).dump(2) + "\n" : text(lengths, rows, context.console));
    return exit_code::kOk;
  }

 private:
  static PackerKind packer_named(const std::string& name) {
    std::vector<std::string> known;
    for (const auto& entry : enum_names(PackerKind{})) {
      if (entry.name == name) return entry.value;
      known.emplace_back(entry.name);
    }
    throw unknown_name("packer", name, known);
  }

  std::vector<std::int64_t> lengths_of(const std::vector<std::string>& files) {
    if (!lengths_.empty() && !files.empty()) throw UserError{"--lengths and files exclude each other"};
    if (lengths_.empty() && files.empty()) throw UserError{"there are no documents", "name files, or give --lengths"};
    std::vector<std::int64_t> lengths = files.empty() ? drawn_or_read() : encoded(files);
    if (lengths.empty()) throw UserError{"the files have no documents", "give files that are not empty"};
    return lengths;
  }

  /// Lengths of the texts in tokens; notes what they are like.
  std::vector<std::int64_t> encoded(const std::vector<std::string>& files) {
    if (tokens_) throw UserError{"--tokens is for lengths that are drawn", "leave it out, or give --lengths"};
    const auto tokenizer = tokenizer_.empty() ? make_byte_tokenizer() : load_tokenizer(tokenizer_);
    std::vector<std::int64_t> lengths;
    for (const std::string& file : files)
      for (const std::string& text : read_documents(file, unit_)) {
        lengths.push_back(std::ssize(tokenizer->encode(text)));
        request_.vectors.push_back(hashed_words(text));
      }
    return lengths;
  }

  std::vector<std::int64_t> drawn_or_read() {
    if (unit_ != DocumentUnit::File) throw UserError{"--paragraphs is for files", "leave it out"};
    if (!tokenizer_.empty()) throw UserError{"--tokenizer is for files", "leave it out"};
    Random random{request_.seed};
    const std::int64_t tokens = tokens_.value_or(kDrawnTokens);
    LengthOptions options;
    if (lengths_.starts_with('{'))
      read_options(parse_yaml(lengths_, "--lengths"), options);
    else if (tokens_)
      throw UserError{"--tokens is for lengths that are drawn", "leave it out: all lengths of the file are taken"};
    else
      return read_lengths(lengths_);
    const LengthSampler sampler{options};
    std::vector<std::int64_t> lengths;
    for (std::int64_t sum = 0; sum < tokens; sum += lengths.back()) lengths.push_back(sampler.draw(random));
    return lengths;
  }

  /// Those that were asked for; of all, what needs texts only where there are some.
  std::vector<PackerKind> chosen() const {
    const bool has_texts = !request_.vectors.empty();
    std::vector<PackerKind> out;
    for (const PackerKind p : packers_)
      if (p == PackerKind::DataSculpt && !has_texts)
        throw UserError{"datasculpt needs to know which documents are alike", "give files in place of --lengths"};
    if (!packers_.empty()) return packers_;
    for (const auto& entry : enum_names(PackerKind{}))
      if (entry.value != PackerKind::DataSculpt || has_texts) out.push_back(entry.value);
    return out;
  }

  std::string text(const std::vector<std::int64_t>& lengths, const std::vector<PackedRow>& rows,
                   const Console& console) const {
    Table table{{{"packer"},
                 {"windows", Align::Right},
                 {"documents in each", Align::Right},
                 {"cuts", Align::Right},
                 {"padding", Align::Right},
                 {"lost", Align::Right},
                 {"attention", Align::Right},
                 {"p95/mean", Align::Right},
                 {"slowest rank", Align::Right}}};
    for (const PackedRow& row : rows) {
      const PackingStatistics& s = row.statistics;
      table.add(
          {std::string{enum_name(row.packer)}, std::to_string(s.windows), fmt::format("{:.1f}", s.parts_per_window),
           fmt::format("{:.2f}", s.truncations_per_window), fmt::format("{:.1f} %", 100 * s.padding),
           fmt::format("{:.2f} %", 100 * double(s.lost) / double(s.lost + s.tokens)), fmt::format("{:.3f}", s.squares),
           fmt::format("{:.2f}", s.window_spread), s.slowest_rank > 0 ? fmt::format("{:.2f}", s.slowest_rank) : "-"});
    }
    return console.bold(fmt::format("{} documents of {} tokens in windows of {}", lengths.size(), sum(lengths),
                                    request_.window)) +
           "\n" + table.text("  ") +
           fmt::format(
               "\ncuts: documents cut in a window, beside pieces of a window's length; attention: ΣL² over that of "
               "one\n"
               "document per window, what a document mask leaves; p95/mean: of ΣL² of windows; slowest rank: of {} "
               "with\n"
               "{} window{} a step, its ΣL² over the mean\n",
               request_.ranks, request_.per_rank, request_.per_rank == 1 ? "" : "s");
  }

  nlohmann::json document(const std::vector<std::int64_t>& lengths, const std::vector<PackedRow>& rows) const {
    nlohmann::json out{{"schema_version", kSchemaVersion},
                       {"documents", lengths.size()},
                       {"tokens", sum(lengths)},
                       {"window", request_.window},
                       {"ranks", request_.ranks},
                       {"windows_per_rank", request_.per_rank},
                       {"seed", request_.seed},
                       {"packers", nlohmann::json::array()}};
    for (const PackedRow& row : rows) {
      const PackingStatistics& s = row.statistics;
      out["packers"].push_back({{"name", enum_name(row.packer)},
                                {"windows", s.windows},
                                {"tokens", s.tokens},
                                {"lost_tokens", s.lost},
                                {"documents_per_window", s.parts_per_window},
                                {"truncations_per_window", s.truncations_per_window},
                                {"padding", s.padding},
                                {"attention", s.squares},
                                {"window_spread", s.window_spread},
                                {"rank_spread", s.rank_spread},
                                {"slowest_rank", s.slowest_rank}});
    }
    return out;
  }

  static std::int64_t sum(const std::vector<std::int64_t>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  }

  PackRequest request_;
  std::vector<PackerKind> packers_;
  std::string lengths_, tokenizer_;
  std::optional<std::int64_t> tokens_;
  DocumentUnit unit_ = DocumentUnit::File;
};

}  // namespace

std::unique_ptr<Command> make_pack() { return std::make_unique<Pack>(); }

}  // namespace orrery
