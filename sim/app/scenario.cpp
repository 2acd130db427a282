// SPDX-License-Identifier: Apache-2.0
#include "sim/app/scenario.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "sim/app/placed_error.hpp"
#include "sim/base/kept_files.hpp"
#include "sim/base/sha256.hpp"
#include "sim/machine/rank_order.hpp"
#include "sim/model/load.hpp"
#include "sim/strategy/strategy.hpp"
#include "sim/strategy/train_step.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWorkloads = "train, generate, infer, serve or cached_training";

void check_workload(const Scenario& s) {
  const Workload& w = s.options.workload;
  const int count = int(w.train.has_value()) + int(w.generate.has_value()) + int(w.infer.has_value()) +
                    int(w.serve.has_value()) + int(w.cached_training.has_value());
  if (count == 1) return;
  throw UserError{at(*s.document.find("workload"), fmt::format("a scenario has one workload, this one has {}", count),
                     fmt::format("give one of {}", kWorkloads))};
}

/// Runs a reader of a value, or of the file that it names, so that errors without a place get that of the option of the
/// value that they are about, else of the value.
template <class F>
auto read_named(const Node& value, F&& read) {
  try {
    return read();
  } catch (const UserError& e) {
    if (!e.diagnostics().front().file.empty()) throw;
    throw placed_in(e, value);
  }
}

std::string find_file(const Scenario& s, std::string_view key) {
  const Node* value = s.document.find(key);
  if (value == nullptr || value->kind != Node::Kind::Scalar || value->scalar.empty()) return {};
  const std::string path = file_named_by(*value);
  if (path.empty()) throw UserError{at(*value, fmt::format("cannot find the file {}", in_quotes(value->scalar)))};
  return path;
}

/// What a configuration calls itself, as Hugging Face's do: "gpt2", "owner/gpt2".
std::string own_name(const Node& config) {
  const Node* name = config.find("_name_or_path");
  const bool is_text = name != nullptr && name->kind == Node::Kind::Scalar;
  const std::string last = is_text ? std::filesystem::path{name->scalar}.filename().string() : std::string{};
  return last.empty() ? std::string{kInline} : last;
}

void read_model(Scenario& s, const Locations& locations) {
  const Node& value = s.options.model;
  if (value.kind == Node::Kind::Map) {
    s.model = read_named(value, [&] { return model_from_config(value, own_name(value)); });
    return;
  }
  if (value.kind != Node::Kind::Scalar) throw UserError{at(value, "expected a file or a configuration as the model")};
  s.model_path = read_named(value, [&] { return locations.find_model(value); });
  s.model = read_named(value, [&] { return load_model(s.model_path); });
}

/// The drafter stands beside the model from here on.
void read_speculation(Scenario& s) {
  if (!s.speculates()) return;
  GenerateOptions& o = *s.options.workload.generate;
  const Node &generate = *s.document.find("workload")->find("generate"), &value = *generate.find("speculate");
  read_named(value, [&] {
    set_usual_accuracy(*o.speculate);
    const auto* t = std::get_if<Transformer>(&s.model.network);
    const std::int64_t all = t ? t->output.out : 1, few = o.speculate->network.vocabulary;
    s.layout = layout_of(*o.speculate, o.temperature, few > 0 ? few : all);
    s.drafter = add_drafter(s.model, *o.speculate, s.layout.depth);
    if (s.strategy != "single")
      throw UserError{fmt::format("speculation runs on one rank, not under strategy '{}'", s.strategy),
                      "leave the strategy out"};
  });
  read_named(generate, [&] {
    if (o.top_k > 0 || o.top_p < 1)
      throw OptionError{{"top_k", "top_p"},
                        "speculation keeps the distribution of a temperature, not that of top_k and top_p",
                        "leave top_k and top_p out"};
    if (o.microbatches > 1 || o.chunk > 0 || !o.lengths.empty() || o.quantised != QuantisedOptions{})
      throw OptionError{{"microbatches", "chunk", "lengths", "quantised"},
                        "speculation reads whole prompts of one length, all at once and in the type of the model",
                        "leave microbatches, chunk, lengths and quantised out"};
  });
}

void read_cluster_of(Scenario& s, const Locations& locations) {
  const Node& value = s.options.cluster;
  if (value.kind == Node::Kind::Map) {
    s.cluster = read_named(value, [&] { return read_cluster(value, kInline); });
    return;
  }
  if (value.kind == Node::Kind::List) throw UserError{at(value, "expected a file or a map as the cluster")};
  s.cluster_path = value.kind == Node::Kind::Null ? locations.find_cluster(std::string{"host"})
                                                  : read_named(value, [&] { return locations.find_cluster(value); });
  s.cluster = read_named(value, [&] { return load_cluster(s.cluster_path); });
}

void read_strategy(Scenario& s) {
  const Node& list = s.options.strategy;
  s.strategy = "single";
  if (list.kind == Node::Kind::Null) return;
  if (list.kind != Node::Kind::List || list.items.size() != 1)
    throw UserError{at(list, "expected a list of one strategy", "for example `strategy: [{single: {}}]`")};
  const Node& item = list.items.front();
  const bool is_map = item.kind == Node::Kind::Map && item.fields.size() == 1;
  if (!is_map && item.kind != Node::Kind::Scalar)
    throw UserError{at(item, "expected a strategy over its options", "for example `- single: {}`")};
  s.strategy = is_map ? item.fields[0].first : item.scalar;
  if (is_map) s.strategy_options = item.fields[0].second;
  read_named(item, [&] { return find_strategy(s.strategy).make(s.strategy_options); });
}

/// Puts the ranks of a training step on the devices of the cluster.
void read_order(Scenario& s) {
  if (s.options.order.empty()) return;
  const Node& value = *s.document.find("order");
  read_named(value, [&] {
    const Mesh mesh = find_strategy(s.strategy).make(s.strategy_options)->mesh();
    if (mesh.axes.empty())
      throw UserError{fmt::format("the strategy `{}` has one rank: there is no order", s.strategy),
                      "leave `order` out"};
    place_ranks(s.cluster, mesh, parse_mesh(s.options.order));
  });
}

std::string listed(const std::vector<CollectiveAlgorithm>& algorithms) {
  std::string out;
  for (std::size_t i = 0; i < algorithms.size(); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : i + 1 < algorithms.size() ? ", " : " or ", name_of(algorithms[i]));
  return out;
}

/// Refuses algorithms that a kind does not have, with those that it has.
void read_algorithms(Scenario& s) {
  std::vector<Diagnostic> problems;
  for (const EnumName<CollectiveKind>& kind : kinds_with_choice()) {
    const auto chosen = s.options.algorithms.of(kind.value);
    if (!chosen || *chosen == CollectiveAlgorithm::Auto || has_algorithm(kind.value, *chosen)) continue;
    problems.push_back(at(*s.document.find("algorithms")->find(kind.name),
                          fmt::format("{} has no algorithm '{}'", kind.name, name_of(*chosen)),
                          fmt::format("{} can be {}", kind.name, listed(algorithms_of(kind.value)))));
  }
  if (!problems.empty()) throw UserError{std::move(problems)};
  s.cluster.algorithms = s.options.algorithms;
}

void check_memory(const Scenario& s) {
  try {
    check(s.options.memory);
  } catch (const UserError& e) {
    const Diagnostic& d = e.diagnostics().front();
    throw UserError{at(*s.document.find("memory"), d.message, d.hint)};
  }
}

/// Where the workload names a recorded trace: of requests to serve, or of drafts and what became of them.
template <class Document>
auto trace_node(const Scenario& s, Document& document) -> decltype(document.find("")) {
  const auto within = [&](auto... keys) {
    auto* node = &document;
    ((node = node == nullptr ? nullptr : node->find(keys)), ...);
    return node;
  };
  const Workload& w = s.options.workload;
  if (w.serve && !w.serve->traffic.trace.empty()) return within("workload", "serve", "traffic", "trace");
  if (s.speculates() && !w.generate->speculate->trace.empty())
    return within("workload", "generate", "speculate", "trace");
  return nullptr;
}

std::string absolute(const std::string& path) { return path.empty() ? path : fs::weakly_canonical(path).string(); }

void read_files(Scenario& s) {
  s.weights_path = find_file(s, "weights");
  s.tokenizer_path = find_file(s, "tokenizer");
  const Node& workload = *s.document.find("workload");
  const auto named = [](const Node& node, std::string_view what) {
    std::string path = file_named_by(node);
    if (path.empty()) throw UserError{at(node, fmt::format("cannot find the {} {}", what, in_quotes(node.scalar)))};
    return path;
  };
  if (const auto& train = s.options.workload.train; train && !train->text.empty())
    s.text_path = named(*workload.find("train")->find("text"), "text");
  if (auto& train = s.options.workload.train; train && train->packing && !train->packing->lengths.file.empty())
    train->packing->lengths.file =
        absolute(named(*workload.find("train")->find("packing")->find("lengths")->find("file"), "lengths"));
  if (const Node* trace = trace_node(s, s.document)) s.trace_path = named(*trace, "trace");
}

Node text_node(const std::string& text) {
  Node n = Node::of(text);
  n.quoted = true;
  return n;
}

void set_field(Node& map, std::string_view key, Node value) {
  if (Node* found = map.find(key))
    *found = std::move(value);
  else
    map.fields.emplace_back(std::string{key}, std::move(value));
}

/// A file by its contents: its name, size, and the digest of its first 16 MiB.
Node fingerprint(const std::string& path) {
  return KeptFiles::once("fingerprint of " + path, [&] {
    constexpr std::size_t kRead = 16u << 20;
    Node map = Node::map();
    map.fields.emplace_back("file", text_node(fs::path{path}.filename().string()));
    if (fs::is_directory(path)) return map;
    std::string head(std::min<std::uintmax_t>(fs::file_size(path), kRead), '\0');
    if (std::FILE* file = std::fopen(path.c_str(), "rb")) {
      head.resize(std::fread(head.data(), 1, head.size(), file));
      std::fclose(file);
    }
    map.fields.emplace_back("bytes", Node::of(std::to_string(fs::file_size(path))));
    map.fields.emplace_back("sha256", text_node(sha256(head)));
    return map;
  });
}

}  // namespace

std::span<const EnumName<NetworkKind>> enum_names(NetworkKind) {
  static constexpr EnumName<NetworkKind> names[] = {{NetworkKind::ClosedForm, "closed_form"},
                                                    {NetworkKind::Flow, "flow"}};
  return names;
}

std::span<const EnumName<Collectives>> enum_names(Collectives) {
  static constexpr EnumName<Collectives> names[] = {{Collectives::ClosedForm, "closed_form"},
                                                    {Collectives::Detailed, "detailed"}};
  return names;
}

std::span<const EnumName<LaunchRegime>> enum_names(LaunchRegime) {
  static constexpr EnumName<LaunchRegime> names[] = {{LaunchRegime::Eager, "eager"}, {LaunchRegime::Graph, "graph"}};
  return names;
}
std::span<const EnumName<Expansion>> enum_names(Expansion) {
  static constexpr EnumName<Expansion> names[] = {{Expansion::Folded, "folded"}, {Expansion::Expanded, "expanded"}};
  return names;
}

std::string_view Scenario::workload_name() const {
  const Workload& w = options.workload;
  return w.train ? "train" : w.generate ? "generate" : w.infer ? "infer" : w.serve ? "serve" : "cached_training";
}

std::int64_t Scenario::seed() const {
  const Workload& w = options.workload;
  return w.train      ? w.train->seed
         : w.generate ? w.generate->seed
         : w.infer    ? w.infer->seed
         : w.serve    ? w.serve->traffic.seed
                      : w.cached_training->seed;
}

Scenario make_scenario(Node document, std::string name, const Locations& locations) {
  Scenario s;
  s.name = std::move(name);
  s.document = std::move(document);
  // `train:` alone asks for the defaults; a null would read as no workload.
  if (Node* workload = s.document.find("workload"))
    for (auto& [key, value] : workload->fields)
      if (value.kind == Node::Kind::Null) value.kind = Node::Kind::Map;
  read_options(s.document, s.options);
  check_workload(s);
  read_strategy(s);
  read_model(s, locations);
  read_speculation(s);
  read_cluster_of(s, locations);
  read_order(s);
  read_algorithms(s);
  check_memory(s);
  read_files(s);
  return s;
}

std::string scenario_name(const std::string& path) {
  const fs::path file{path};
  const bool in_folder = file.filename() == "scenario.yaml" && file.has_parent_path();
  return in_folder ? fs::weakly_canonical(file).parent_path().filename().string() : file.stem().string();
}

Scenario load_scenario(const std::string& path, const Locations& locations, const Environment& environment,
                       const std::vector<Override>& overrides) {
  return make_scenario(merged_document(read_yaml(path), environment, overrides, locations), scenario_name(path),
                       locations);
}

Node resolved_scenario(const Scenario& s) {
  Node out = write_options(s.options);
  if (!s.model_path.empty()) set_field(out, "model", text_node(absolute(s.model_path)));
  if (!s.cluster_path.empty()) set_field(out, "cluster", text_node(absolute(s.cluster_path)));
  if (s.options.cluster.kind == Node::Kind::Map) set_field(out, "cluster", write_options(s.cluster));
  for (const auto& [key, path] : {std::pair{"weights", s.weights_path}, std::pair{"tokenizer", s.tokenizer_path}})
    if (!path.empty()) set_field(out, key, text_node(absolute(path)));
  Node strategy = Node::map();
  strategy.fields.emplace_back(s.strategy,
                               s.strategy_options.kind == Node::Kind::Null ? Node::map() : s.strategy_options);
  Node list = Node::list();
  list.items.push_back(std::move(strategy));
  set_field(out, "strategy", std::move(list));
  set_field(out, "include", Node::list());
  Node& workload = *out.find("workload");
  std::erase_if(workload.fields, [](const auto& f) { return f.second.kind == Node::Kind::Null; });
  if (Node* train = workload.find("train"))
    std::erase_if(train->fields,
                  [](const auto& f) { return f.first == "packing" && f.second.kind == Node::Kind::Null; });
  if (!s.text_path.empty()) set_field(*workload.find("train"), "text", text_node(absolute(s.text_path)));
  if (!s.trace_path.empty()) *trace_node(s, out) = text_node(absolute(s.trace_path));
  if (Node* generate = workload.find("generate"))
    std::erase_if(generate->fields, [](const auto& f) { return f.second.kind == Node::Kind::Null; });
  return out;
}

std::string canonical_scenario(const Scenario& s) {
  Node out = resolved_scenario(s);
  const std::pair<const char*, const std::string&> files[] = {
      {"model", s.model_path}, {"weights", s.weights_path}, {"tokenizer", s.tokenizer_path}};
  for (const auto& [key, path] : files)
    if (!path.empty()) set_field(out, key, fingerprint(path));
  if (!s.text_path.empty()) set_field(*out.find("workload")->find("train"), "text", fingerprint(s.text_path));
  if (!s.trace_path.empty()) *trace_node(s, out) = fingerprint(s.trace_path);
  if (const auto& train = s.options.workload.train; train && train->packing && !train->packing->lengths.file.empty())
    set_field(*out.find("workload")->find("train")->find("packing")->find("lengths"), "file",
              fingerprint(train->packing->lengths.file));
  Node cluster = write_options(s.cluster);
  set_field(cluster, "name", text_node(s.cluster.name));
  set_field(out, "cluster", std::move(cluster));
  return to_canonical_json(out) + "\n";
}

}  // namespace orrery
