// SPDX-License-Identifier: Apache-2.0
#include "sim/base/yaml.hpp"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "sim/base/source_text.hpp"

namespace orrery {
namespace {

/// What a node and all below it cost when an alias copies them.
struct Extent {
  std::size_t nodes = 0, bytes = 0, height = 0;
};

Extent extent_of(const Node& node) {
  Extent sum{1, node.scalar.size() + node.origin.text.size() + node.origin.source.size() + node.key.text.size(), 0};
  const auto add = [&](const Node& below) {
    const Extent e = extent_of(below);
    sum = {sum.nodes + e.nodes, sum.bytes + e.bytes, std::max(sum.height, e.height + 1)};
  };
  for (const Node& item : node.items) add(item);
  for (const auto& [key, value] : node.fields) {
    sum.bytes += key.size();
    add(value);
  }
  return sum;
}

/// Builds the tree from yaml-cpp's events. The events, unlike yaml-cpp's nodes, keep duplicate keys apart, and stop the
/// parser before it recurses past the limit of depth.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(SourceText& source, const ReadLimits& limits) : source_{source}, limits_{limits} {}

  /// A text without anything in it is a null at its beginning.
  Node take() {
    if (documents_ == 0) root_.origin = source_.origin(1, 1);
    return std::move(root_);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) fail(mark, "a second document starts here", "one file holds one document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_as_key(mark);
    add(make(mark, Node::Kind::Null), anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_tag(mark, tag);
    // yaml-cpp turns these two escapes into Latin-1.
    if (!is_utf8(value)) fail(mark, "the escapes \\N and \\_ are not supported", "write \\u0085 or \\u00a0");
    if (expects_key()) return take_key(mark, value);
    Node node = make(mark, Node::Kind::Scalar);
    node.scalar = value;
    node.quoted = tag == "!";
    add(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_as_key(mark);
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail(mark, "an alias stands inside of what it refers to", "a document is a tree");
    charge(mark, found->second.extent);
    if (open_.size() + found->second.extent.height > limits_.depth) fail_depth(mark);
    add(found->second.node, 0);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::List);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::Map);
  }
  void OnMapEnd() override { close(); }

 private:
  /// A list or map whose end has not come yet.
  struct Open {
    Node node;
    YAML::anchor_t anchor;
    std::unordered_set<std::string> keys;
    std::optional<std::string> key;  // of the field whose value comes next
    KeyPlace key_place;
  };
  struct Anchored {
    Node node;
    Extent extent;
  };

  [[noreturn]] void fail(const YAML::Mark& mark, std::string message, std::string hint = {}) const {
    throw source_.error(mark.line + 1, mark.column + 1, std::move(message), std::move(hint));
  }
  [[noreturn]] void fail_depth(const YAML::Mark& mark) const {
    fail(mark, fmt::format("nested deeper than {} levels", limits_.depth));
  }

  bool expects_key() const { return !open_.empty() && open_.back().node.kind == Node::Kind::Map && !open_.back().key; }

  void refuse_as_key(const YAML::Mark& mark) const {
    if (expects_key()) fail(mark, "a key must be a text", "put it between quotes; every bracket must be closed");
  }

  /// yaml-cpp reports "?" for plain and "!" for quoted scalars that have no tag of their own.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    fail(mark, fmt::format("the tag {} is not supported", in_quotes(tag)), "the place of a value decides its type");
  }

  void charge(const YAML::Mark& mark, const Extent& extent) {
    nodes_ += extent.nodes;
    copied_bytes_ += extent.bytes;
    if (nodes_ > limits_.nodes) fail(mark, fmt::format("the document has more than {} values", limits_.nodes));
    if (copied_bytes_ > limits_.bytes) fail(mark, fmt::format("aliases copy more than {} bytes", limits_.bytes));
  }

  Node make(const YAML::Mark& mark, Node::Kind kind) {
    charge(mark, {1, 0, 0});
    Node node;
    node.kind = kind;
    node.origin = source_.origin(mark.line + 1, mark.column + 1);
    return node;
  }

  void take_key(const YAML::Mark& mark, const std::string& key) {
    Open& map = open_.back();
    if (!map.keys.insert(key).second) {
      const Node& first = *map.node.find(key);
      fail(mark, fmt::format("duplicate key {}", in_quotes(key)),
           fmt::format("it stands on line {} too", first.key.line));
    }
    map.key = key;
    map.key_place = {mark.line + 1, mark.column + 1, {}};
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Node::Kind kind) {
    refuse_tag(mark, tag);
    refuse_as_key(mark);
    if (open_.size() >= limits_.depth) fail_depth(mark);
    open_.push_back({make(mark, kind), anchor, {}, {}, {}});
  }

  void close() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    add(std::move(closed.node), closed.anchor);
  }

  void add(Node node, YAML::anchor_t anchor) {
    if (anchor != 0) {
      const Extent extent = extent_of(node);
      YAML::Mark mark;
      mark.line = node.origin.line - 1;
      mark.column = node.origin.column - 1;
      charge(mark, extent);
      anchors_.insert_or_assign(anchor, Anchored{node, extent});
    }
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.kind == Node::Kind::List) {
      parent.node.items.push_back(std::move(node));
      return;
    }
    node.key = std::move(parent.key_place);
    if (node.key.line != node.origin.line) node.key.text = source_.kept_line(node.key.line);
    parent.node.fields.emplace_back(std::move(*parent.key), std::move(node));
    parent.key.reset();
  }

  SourceText& source_;
  const ReadLimits& limits_;
  int documents_ = 0;
  std::size_t nodes_ = 0, copied_bytes_ = 0;
  std::vector<Open> open_;
  std::unordered_map<YAML::anchor_t, Anchored> anchors_;
  Node root_;
};

/// The words of yaml-cpp in our style: lower-case first letter, no full stop.
std::string in_our_style(std::string message) {
  if (!message.empty() && message[0] >= 'A' && message[0] <= 'Z')
    message[0] = static_cast<char>(message[0] - 'A' + 'a');
  while (message.ends_with('.')) message.pop_back();
  return message;
}

}  // namespace

Node parse_yaml(std::string_view text, std::string_view file_name, const ReadLimits& limits) {
  SourceText source{text, file_name, limits};
  TreeBuilder builder{source, limits};
  std::istringstream stream{std::string{source.text()}};
  try {
    YAML::Parser parser{stream};
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    const bool placed = !e.mark.is_null();
    throw source.error(placed ? e.mark.line + 1 : 0, placed ? e.mark.column + 1 : 0, in_our_style(e.msg));
  }
  return builder.take();
}

}  // namespace orrery
