// SPDX-License-Identifier: Apache-2.0
#include "sim/program/speculation/speculation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/program/data.hpp"
#include "sim/program/speculation/draft_tree.hpp"

namespace orrery {
namespace {

/// One sequence.
struct Request {
  std::vector<std::int32_t> tokens;   // the prompt and what follows; the last is the root, not in the model's cache yet
  std::int64_t drafted = 0;           // entries of the drafter's cache that are as they would be without drafts
  std::vector<std::int32_t> path{0};  // rows of `features` that the last round kept
  std::int64_t path_first = 0;        // the token that the first of them is of
  bool done = false;

  std::int64_t context() const { return std::ssize(tokens) - 1; }
};

std::vector<std::int32_t> as_integers(const std::vector<double>& values) { return {values.begin(), values.end()}; }

class Speculation final : public SpeculationProgram {
 public:
  Speculation(const Model& model, const Drafter& drafter, const GenerateOptions& o, const SpeculationLayout& layout,
              SpeculationPlans plans, std::vector<std::int32_t> prompt)
      : drafter_{drafter}, o_{o}, layout_{layout}, transformer_{std::get<Transformer>(model.network)} {
    plans_.push_back(std::move(plans.prefill));
    plans_.push_back(std::move(plans.start));
    for (Plan& p : plans.levels) plans_.push_back(std::move(p));
    first_verify_ = plans_.size();
    for (Plan& p : plans.verify) plans_.push_back(std::move(p));
    prompt = prompts_of(model, o, std::move(prompt));
    for (std::int64_t b = 0; b < o.batch; ++b) {
      Request r;
      r.tokens.assign(prompt.begin() + b * o.prompt, prompt.begin() + (b + 1) * o.prompt);
      requests_.push_back(std::move(r));
    }
    progress_.accepted.assign(static_cast<std::size_t>(layout_.depth) + 1, 0);
  }

  std::span<const Plan> plans() const override { return plans_; }
  const SpeculationProgress& progress() const override { return progress_; }

  std::vector<std::int32_t> generated(std::int64_t sequence) const override {
    const std::vector<std::int32_t>& all = requests_[static_cast<std::size_t>(sequence)].tokens;
    const auto end = std::min<std::int64_t>(std::ssize(all), o_.prompt + o_.tokens);
    return {all.begin() + std::min<std::int64_t>(o_.prompt, end), all.begin() + end};
  }

  std::optional<Step> next() override {
    if (stage_ == Stage::Round) {
      if (std::all_of(requests_.begin(), requests_.end(), [](const Request& r) { return r.done; })) return {};
      begin_round();
    }
    Step s;
    s.bindings[Symbol::Step] = ++step_;
    if (stage_ == Stage::Prefill) {
      prefill(s);
    } else {
      s.bindings[Symbol::Context] = mean_context();
      if (stage_ == Stage::Draft)
        depth_ == 0 ? start(s) : level(s);
      else
        verify(s);
    }
    return s;
  }

  void told(const Outcome& outcome) override {
    switch (stage_) {
      case Stage::Prefill:
        told_prefill(as_integers(value(outcome, "next_tokens")));
        stage_ = Stage::Round;
        return;
      case Stage::Draft:
        told_candidates(outcome);
        return;
      default:
        told_verified(as_integers(value(outcome, "path")), as_integers(value(outcome, "next_tokens")));
        stage_ = Stage::Round;
    }
  }

 private:
  enum class Stage : std::uint8_t { Prefill, Round, Draft, Verify };

  static const std::vector<double>& value(const Outcome& outcome, const std::string& port) {
    const auto it = outcome.values.find(port);
    if (it == outcome.values.end()) bug("a speculation was not told its " + port);
    return it->second;
  }
  std::int64_t mean_context() const {
    std::int64_t sum = 0;
    for (const Request& r : requests_) sum += r.context();
    return (sum + o_.batch - 1) / o_.batch;
  }
  bool is_medusa() const { return drafter_.method == DraftMethod::Medusa; }
  /// Entries of the drafter's cache when it has caught up with a sequence.
  std::int64_t caught_up(const Request& r) const { return r.context() + (drafter_.reads_states() ? 0 : 1); }
  std::int32_t feature_row(std::size_t b, std::int32_t node) const {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(b) * layout_.verified.back()) + node;
  }
  /// Rows of a table of positions begin later in some models; drafters turn by the position itself.
  std::int64_t position(std::int64_t at, bool of_model) const {
    return at + (of_model && !transformer_.positions.is_none() ? transformer_.position_offset : 0);
  }

  void prefill(Step& s) {
    s.plan = 0;
    s.outputs = {"next_tokens"};
    PortValues tokens{"tokens", {}, {}}, shifted{"draft_tokens", {}, {}};
    for (const Request& r : requests_) {
      tokens.indices.insert(tokens.indices.end(), r.tokens.begin(), r.tokens.end());
      shifted.indices.insert(shifted.indices.end(), r.tokens.begin() + 1, r.tokens.end());
      shifted.indices.push_back(0);  // not known yet: the first round makes this entry again
    }
    s.inputs.push_back(std::move(tokens));
    if (plans_[0].has_port("draft_tokens")) s.inputs.push_back(std::move(shifted));
  }

  void told_prefill(const std::vector<std::int32_t>& next) {
    for (std::size_t b = 0; b < requests_.size(); ++b) {
      Request& r = requests_[b];
      r.drafted = drafter_.reads_states() ? o_.prompt - 1 : o_.prompt;
      r.path_first = o_.prompt - 1;
      r.tokens.push_back(next[b]);
      r.done = o_.tokens <= 1;
    }
  }

  void begin_round() {
    stage_ = Stage::Draft;
    depth_ = 0;
    trees_.clear();
    for (std::size_t b = 0; b < requests_.size(); ++b) {
      trees_.emplace_back(layout_, *o_.speculate, requests_[b].tokens.back());
      trees_.back().nodes().front().row = static_cast<std::int32_t>(b);
    }
  }

  /// The drafter catches up with what was accepted.
  void start(Step& s) {
    s.plan = 1;
    const Plan& plan = plans_[1];
    PortValues sources{"sources", {}, {}}, roots{"root_tokens", {}, {}}, path{"path_tokens", {}, {}};
    for (std::size_t b = 0; b < requests_.size(); ++b) {
      roots.indices.push_back(requests_[b].tokens.back());
      path.indices.push_back(requests_[b].tokens.back());
      if (!drafter_.has_cache()) sources.indices.push_back(feature_row(b, requests_[b].path.back()));
    }
    if (drafter_.has_cache()) catch_up(s, sources);
    for (PortValues* v : {&sources, &roots, &path})
      if (plan.has_port(v->port)) s.inputs.push_back(std::move(*v));
    const std::int64_t ports = is_medusa() ? layout_.depth : 1;
    for (std::int64_t i = 0; i < ports; ++i) {
      s.outputs.push_back(fmt::format("candidates.{}", i));
      s.outputs.push_back(fmt::format("probabilities.{}", i));
    }
  }

  void catch_up(Step& s, PortValues& sources) {
    const std::int64_t rows = layout_.start_rows;
    PortValues tokens{"draft_tokens", {}, {}}, positions{"draft_positions", {}, {}}, contexts{"draft_contexts", {}, {}},
        last{"last", {}, {}}, model{"contexts", {}, {}};
    for (std::size_t b = 0; b < requests_.size(); ++b) {
      const Request& r = requests_[b];
      const std::int64_t missing = caught_up(r) - r.drafted;
      if (missing < 1 || missing > rows)
        bug(fmt::format("a drafter is {} tokens behind, with room for {}", missing, rows));
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t entry = r.drafted + std::min(i, missing - 1);
        const std::int64_t token = entry + (drafter_.reads_states() ? 1 : 0);
        tokens.indices.push_back(r.tokens[static_cast<std::size_t>(token)]);
        positions.indices.push_back(static_cast<std::int32_t>(position(entry, !drafter_.layers.empty())));
        if (drafter_.reads_states())
          sources.indices.push_back(feature_row(b, r.path[static_cast<std::size_t>(entry - r.path_first)]));
      }
      contexts.indices.push_back(static_cast<std::int32_t>(r.drafted));
      model.indices.push_back(static_cast<std::int32_t>(r.context()));
      last.indices.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(b) * rows + missing - 1));
    }
    for (PortValues* v : {&tokens, &positions, &contexts, &last, &model})
      if (plans_[1].has_port(v->port)) s.inputs.push_back(std::move(*v));
  }

  /// A pass over the nodes of depth_ that are expanded; places that a sequence does not fill repeat its root.
  void level(Step& s) {
    s.plan = static_cast<std::uint32_t>(1 + depth_);
    const Plan& plan = plans_[s.plan];
    const std::int64_t width = layout_.frontier[static_cast<std::size_t>(depth_ - 1)];
    PortValues tokens{"draft_tokens", {}, {}}, positions{"draft_positions", {}, {}}, contexts{"draft_contexts", {}, {}},
        model{"contexts", {}, {}}, sources{"sources", {}, {}}, path{"path_tokens", {}, {}};
    for (std::size_t b = 0; b < requests_.size(); ++b) {
      const Request& r = requests_[b];
      DraftTree& tree = trees_[b];
      const std::int64_t at = caught_up(r);
      contexts.indices.push_back(static_cast<std::int32_t>(at));
      model.indices.push_back(static_cast<std::int32_t>(r.context()));
      for (std::int64_t i = 0; i < width; ++i) {
        const bool there = i < std::ssize(tree.frontier());
        const std::int32_t node = there ? tree.frontier()[static_cast<std::size_t>(i)] : 0;
        const DraftNode& n = tree.nodes()[static_cast<std::size_t>(node)];
        tokens.indices.push_back(n.token);
        positions.indices.push_back(static_cast<std::int32_t>(position(at + depth_ - 1, !drafter_.layers.empty())));
        const bool of_features = drafter_.method == DraftMethod::Hydra;
        sources.indices.push_back(of_features ? feature_row(b, r.path.back())
                                              : tree.nodes()[static_cast<std::size_t>(std::max(n.parent, 0))].row);
        add_path(tree, node, path.indices);
        if (there) take_place(b, node, i, width);
      }
    }
    PortValues parents = draft_parents();
    for (PortValues* v : {&tokens, &positions, &contexts, &model, &sources, &path, &parents})
      if (plan.has_port(v->port)) s.inputs.push_back(std::move(*v));
    s.outputs = {"candidates.0", "probabilities.0"};
  }

  void take_place(std::size_t b, std::int32_t node, std::int64_t i, std::int64_t width) {
    DraftNode& n = trees_[b].nodes()[static_cast<std::size_t>(node)];
    n.place = static_cast<std::int32_t>(i);
    n.row = static_cast<std::int32_t>(first_draft_row(layout_, o_.batch, depth_) +
                                      static_cast<std::int64_t>(b) * width + i);
  }

  /// The tokens from the root to a node, the root repeated in front where the path is shorter than the pass.
  void add_path(const DraftTree& tree, std::int32_t node, std::vector<std::int32_t>& out) const {
    std::vector<std::int32_t> tokens;
    for (std::int32_t n = node; n >= 0; n = tree.nodes()[static_cast<std::size_t>(n)].parent)
      tokens.push_back(tree.nodes()[static_cast<std::size_t>(n)].token);
    tokens.resize(static_cast<std::size_t>(depth_ + 1), tokens.back());
    out.insert(out.end(), tokens.rbegin(), tokens.rend());
  }

  /// Which slot each row of the drafter's cache follows, for the levels so far.
  PortValues draft_parents() const {
    PortValues parents{"draft_parents", {}, {}};
    const std::int64_t slots = layout_.slots(depth_);
    for (const DraftTree& tree : trees_) {
      std::vector<std::int32_t> of(static_cast<std::size_t>(slots), -1);
      for (const DraftNode& n : tree.nodes()) {
        if (n.place < 0 || n.parent <= 0) continue;
        const DraftNode& p = tree.nodes()[static_cast<std::size_t>(n.parent)];
        of[static_cast<std::size_t>(layout_.slots(n.depth - 1) + n.place)] =
            static_cast<std::int32_t>(layout_.slots(p.depth - 1) + p.place);
      }
      parents.indices.insert(parents.indices.end(), of.begin(), of.end());
    }
    return parents;
  }

  void told_candidates(const Outcome& outcome) {
    const std::int64_t levels = is_medusa() ? layout_.depth : 1;
    for (std::int64_t i = 0; i < levels; ++i) {
      const auto tokens = as_integers(value(outcome, fmt::format("candidates.{}", i)));
      const auto& probabilities = value(outcome, fmt::format("probabilities.{}", i));
      grow(tokens, probabilities, is_medusa() ? i * o_.batch : -1);
      ++depth_;
    }
    const bool grown =
        std::all_of(trees_.begin(), trees_.end(), [](const DraftTree& t) { return t.frontier().empty(); });
    if (depth_ == layout_.depth || grown) stage_ = Stage::Verify;
  }

  /// Children for all trees; heads that see no drafts give those of a depth the same candidates, from distributions
  /// that begin at row `shared`.
  void grow(const std::vector<std::int32_t>& tokens, const std::vector<double>& probabilities, std::int64_t shared) {
    const std::int64_t k = layout_.choices[static_cast<std::size_t>(depth_)];
    const bool one_row = depth_ == 0 || shared >= 0;
    const std::int64_t width = one_row ? 1 : layout_.frontier[static_cast<std::size_t>(depth_ - 1)];
    for (std::size_t b = 0; b < trees_.size(); ++b) {
      std::vector<std::int32_t> mine, rows;
      std::vector<double> p;
      const std::size_t nodes = trees_[b].frontier().size();
      for (std::size_t i = 0; i < nodes; ++i) {
        const std::int64_t from =
            (static_cast<std::int64_t>(b) * width + (one_row ? 0 : static_cast<std::int64_t>(i))) * k;
        mine.insert(mine.end(), tokens.begin() + from, tokens.begin() + from + k);
        p.insert(p.end(), probabilities.begin() + from, probabilities.begin() + from + k);
        const DraftNode& n = trees_[b].nodes()[static_cast<std::size_t>(trees_[b].frontier()[i])];
        const std::int32_t row = shared >= 0 ? static_cast<std::int32_t>(shared) + static_cast<std::int32_t>(b) : n.row;
        rows.push_back(layout_.drawn ? row : -1);
      }
      trees_[b].expand(k, mine, p, rows);
    }
  }

  void verify(Step& s) {
    std::size_t most = 0;
    for (DraftTree& t : trees_) {
      t.finish();
      most = std::max(most, t.nodes().size());
    }
    const auto size =
        std::lower_bound(layout_.verified.begin(), layout_.verified.end(), static_cast<std::int64_t>(most));
    s.plan = static_cast<std::uint32_t>(first_verify_ + static_cast<std::size_t>(size - layout_.verified.begin()));
    PortValues tokens{"tokens", {}, {}}, positions{"positions", {}, {}}, parents{"parents", {}, {}},
        contexts{"contexts", {}, {}}, rows{"draft_rows", {}, {}};
    for (std::size_t b = 0; b < requests_.size(); ++b) {
      const std::int64_t at = requests_[b].context();
      contexts.indices.push_back(static_cast<std::int32_t>(at));
      for (std::size_t i = 0; i < static_cast<std::size_t>(*size); ++i) {
        const bool there = i < trees_[b].nodes().size();
        const DraftNode n = there ? trees_[b].nodes()[i] : DraftNode{.parent = -2};
        tokens.indices.push_back(n.token);
        positions.indices.push_back(static_cast<std::int32_t>(position(at + n.depth, true)));
        parents.indices.push_back(n.parent);
        rows.indices.push_back(n.draft_row);
      }
    }
    for (PortValues* v : {&tokens, &positions, &parents, &contexts, &rows})
      if (plans_[s.plan].has_port(v->port)) s.inputs.push_back(std::move(*v));
    s.outputs = {"path", "next_tokens"};
  }

  void told_verified(const std::vector<std::int32_t>& path, const std::vector<std::int32_t>& next) {
    ++progress_.rounds;
    const std::int64_t columns = layout_.depth + 1;
    for (std::size_t b = 0; b < requests_.size(); ++b) {
      if (requests_[b].done) continue;
      const auto first = path.begin() + static_cast<std::int64_t>(b) * columns;
      std::vector<std::int32_t> kept{first, std::find_if(first, first + columns, [](std::int32_t n) { return n < 0; })};
      keep(b, std::move(kept), next[b]);
    }
  }

  void keep(std::size_t b, std::vector<std::int32_t> path, std::int32_t next) {
    Request& r = requests_[b];
    const std::vector<DraftNode>& nodes = trees_[b].nodes();
    const std::int64_t context = r.context(), caught = caught_up(r);
    const auto accepted = std::ssize(path) - 1;
    for (std::size_t i = 1; i < path.size(); ++i) r.tokens.push_back(nodes[static_cast<std::size_t>(path[i])].token);
    r.tokens.push_back(next);
    r.drafted = drafter_.layers.empty() ? caught + in_place(nodes, path) : r.context();
    r.path = std::move(path);
    r.path_first = context;
    ++progress_.sequence_rounds;
    progress_.generated += accepted + 1;
    progress_.verified += std::ssize(nodes);
    ++progress_.accepted[static_cast<std::size_t>(accepted)];
    r.done = std::ssize(r.tokens) - o_.prompt >= o_.tokens;
  }

  /// Accepted drafts whose entries already stand where they belong: made from tokens, in passes of one row.
  std::int64_t in_place(const std::vector<DraftNode>& nodes, const std::vector<std::int32_t>& path) const {
    if (drafter_.reads_states()) return 0;
    std::int64_t count = 0;
    for (std::size_t i = 1; i < path.size(); ++i) {
      const DraftNode& n = nodes[static_cast<std::size_t>(path[i])];
      const auto level = static_cast<std::size_t>(n.depth - 1);
      if (n.place != 0 || layout_.frontier[level] != 1) break;
      ++count;
    }
    return count;
  }

  const Drafter& drafter_;
  GenerateOptions o_;
  SpeculationLayout layout_;
  const Transformer& transformer_;
  std::vector<Plan> plans_;
  std::size_t first_verify_ = 0;
  std::vector<Request> requests_;
  std::vector<DraftTree> trees_;
  SpeculationProgress progress_;
  Stage stage_ = Stage::Prefill;
  std::int64_t step_ = 0, depth_ = 0;
};

}  // namespace

std::unique_ptr<SpeculationProgram> speculation_program(const Model& model, const Drafter& drafter,
                                                        const GenerateOptions& options, const SpeculationLayout& layout,
                                                        SpeculationPlans plans, std::vector<std::int32_t> prompt) {
  return std::make_unique<Speculation>(model, drafter, options, layout, std::move(plans), std::move(prompt));
}

}  // namespace orrery
