// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/plan/plan.hpp"
#include "sim/timeline/timeline.hpp"

namespace orrery {

/// How an op of one rank depends on what other ranks or the host do.
enum class MeetingKind : std::uint8_t { None, Collective, Send, Receive, HostWait };

/// What reports say of a work: shared by all ops that do the same.
struct WorkDigest {
  NameId kind;  // "gemm"; of a collective which one: "all_reduce"
  NameId text;  // "gemm m=512 n=768 k=768"
  OpClass op_class = OpClass::Other;
  MeetingKind meeting = MeetingKind::None;
  Peer peer;             // of a send or receive
  GroupId group;         // of a collective
  std::int64_t tag = 0;  // of a send or receive
  Flops flops;
  Bytes moved, message;  // least traffic to device memory; payload to other ranks or tiers
};

struct TensorDigest {
  NameId name;
  TensorRole role = TensorRole::Activation;
  Tier tier = Tier::Device;
  std::int64_t bytes = 0;  // of an owner; 0 for a view
};

/// An op takes the storage of a tensor before it starts, or gives it back after it has ended. Storage with several such
/// ends goes with the last of them.
struct StorageUse {
  OpId op;
  TensorId owner;
  bool takes = false;
};

/// Rows that a digest holds itself, or reads where they are: in a plan that outlives it.
template <class T>
class Rows {
 public:
  Rows() = default;
  Rows(std::vector<T> own) : own_{std::move(own)} {}
  static Rows of(const std::vector<T>& others) {
    Rows r;
    r.others_ = &others;
    return r;
  }
  std::size_t size() const { return all().size(); }
  const T& operator[](std::size_t i) const { return all()[i]; }
  auto begin() const { return all().begin(); }
  auto end() const { return all().end(); }
  operator std::span<const T>() const { return all(); }

 private:
  const std::vector<T>& all() const { return others_ != nullptr ? *others_ : own_; }

  std::vector<T> own_;
  const std::vector<T>* others_ = nullptr;
};

/// What readers of a timeline need to know of the plan: names, classes, streams and order, but neither operands nor
/// layouts. Op, tensor and class ids are those of the plan; works of ops are into `works`.
struct PlanDigest {
  std::string name;
  Mesh mesh;
  std::vector<RankClass> classes;
  std::vector<Group> groups;
  Names names;
  std::vector<WorkDigest> works;
  Rows<Op> ops;
  Rows<OpId> deps;
  Rows<Repetition> repetitions;       // empty where nobody told
  std::vector<TensorDigest> tensors;  // of an outline empty: see tensor()
  std::vector<StorageUse> storage;    // in order of ops; empty where nobody asked
  Purpose purpose;
  const Plan* plan = nullptr;  // that an outline reads

  const Op& operator[](OpId id) const { return ops[id.index()]; }
  const WorkDigest& work(OpId id) const { return works[ops[id.index()].work.index()]; }
  std::string_view name_of(OpId id) const { return names[ops[id.index()].name]; }
  std::span<const OpId> deps_of(OpId id) const {
    const std::span<const OpId> all = deps;
    return all.subspan(ops[id.index()].first_dep, ops[id.index()].num_deps);
  }
  TensorDigest tensor(TensorId id) const;
  /// The class whose ops are around this one; none where no class has it.
  ClassId class_of(OpId id) const;
};

/// One entry per plan that the timeline's instances executed, in the order that Timeline::instance_plans counts.
using PlanDigests = std::vector<PlanDigest>;

/// Whether a digest says which op takes and gives back which storage: about as much as the ops themselves.
enum class StorageUses : std::uint8_t { Left, Told };

PlanDigest digest(const Plan& plan, StorageUses storage = StorageUses::Left);
/// A digest that reads ops, dependencies and tensors in the plan, which must outlive it: for plans of millions of ops.
PlanDigest outline(const Plan& plan);
PlanDigests describe(const Plan& plan, StorageUses storage = StorageUses::Left);
PlanDigests describe(std::span<const Plan* const> plans, StorageUses storage = StorageUses::Left);
PlanDigests outlines(std::span<const Plan* const> plans);

/// The plan of a span; bug() when the list is too short.
const PlanDigest& plan_of(const Timeline& timeline, const PlanDigests& plans, const Span& span);

/// A timeline with all that is needed to show, analyse and compare it: what a trace file holds.
struct Trace {
  Timeline timeline;
  PlanDigests plans;
  std::vector<std::pair<std::string, std::string>> metadata;  // "scenario_hash", "tool_version" …; keys are unique
};

/// The problems that make a trace unfit for analysis: ids out of range, ends before starts, sizes that do not agree.
/// Readers refuse such files; empty when sound.
std::vector<std::string> check_trace(const Trace& trace);

/// Whether op ids of the two plans mean the same ops, so that spans can be joined on them.
bool same_ops(const PlanDigest& a, const PlanDigest& b);

}  // namespace orrery
