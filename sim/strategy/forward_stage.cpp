// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/forward_stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/base/option_error.hpp"

namespace orrery {
namespace {

void check_mesh(const Mesh& mesh, const ParallelOptions& p) {
  for (const Axis& a : mesh.axes)
    if (a.size > 1 && a.name != "tp" && a.name != "pp" && a.name != "dp" && a.name != "ep")
      throw OptionError{{"mesh"},
                        fmt::format("axis {} of the mesh is for training", a.name),
                        "generation and inference split the model over tp, pp and ep, and samples over dp and ep"};
  if (!p.layers.empty())
    throw OptionError{{"layers"}, "layers have no meshes of their own in passes that do not train"};
  if (p.sequence_parallel)
    throw OptionError{
        {"sequence_parallel"}, "sequence_parallel is for training", "leave it out, or use data_attention"};
  for (const auto& [name, on] : {std::pair{"whole_experts", p.whole_experts},
                                 {"expert_overlap", p.expert_overlap},
                                 {"expert_slots", p.expert_slots > 0},
                                 {"tp_comm_overlap", p.tp_comm_overlap}})
    if (on) throw OptionError{{std::string{name}}, fmt::format("{} is for training", name), "leave it out"};
}

}  // namespace

ForwardStep make_forward_step(PlanBuilder& b, const Model& model, const ParallelOptions& p, const ForwardWork& work) {
  check_mesh(b.plan().mesh, p);
  ParallelOptions whole = p;  // weights that nobody updates are whole on each replica
  whole.data.kind = DataKind::Ddp;
  Roles roles = roles_of(b.plan().mesh);
  const auto* t = std::get_if<Transformer>(&model.network);
  roles.sums_logits = work.restored && roles.tp && t && !t->tied;
  const TrainOptions sizes{.batch = work.batch, .microbatches = work.microbatches, .sequence = work.sequence};
  ForwardStep step{.model = model,
                   .parallel = p,
                   .work = work,
                   .arrangements = make_arrangements(b, model, sizes, whole, {roles}),
                   .bounds = {}};
  check_meaning(model, step.roles());
  if (step.roles().pp) {
    check_pipeline(model);
    step.bounds = part_bounds(p.stage_layers, block_count(model), step.stages());
  } else if (p.blocking) {
    throw OptionError{{"blocking"}, "blocking is for pipelines", "leave it out, or give the mesh an axis pp"};
  }
  return step;
}

ForwardStage::ForwardStage(PlanBuilder& builder, const ForwardStep& step, std::int64_t stage)
    : b_{builder},
      step_{step},
      stage_{stage},
      sizes_{step.slices().batch, step.work.sequence, step.work.target_sequence} {
  std::vector<CoordRange> ranges = all_of(b_.plan().mesh);
  if (step.roles().pp) ranges[static_cast<std::size_t>(step.roles().pp.axes.front())] = {stage, stage + 1};
  b_.begin_class(step.roles().pp ? fmt::format("stage {}", stage) : "all", std::move(ranges));
  const ForwardWork& w = step.work;
  ParameterStorage::Options o{.dtype = w.dtype,
                              .quantised = w.quantised.weights,
                              .placed = w.placed,
                              .separate = true,
                              .peer = w.peer,
                              .data = {},
                              .parts = held_parts(),
                              .ties = {}};
  weights_ = std::make_unique<ParameterStorage>(b_, step.model, step.arrangements, std::move(o));
  tape_ = std::make_unique<Tape>(b_, weights_->targets());
  const Layers::Sizes sizes{.sequence = w.sequence,
                            .dtype = w.dtype,
                            .narrow = w.quantised.narrow,
                            .weights = w.quantised.weights,
                            .cache = w.quantised.cache,
                            .cache_use = w.cache_use,
                            .room = {.buffer = step.parallel.expert_buffer}};
  layers_ = std::make_unique<Layers>(*tape_, step.arrangements, *weights_, sizes);
  if (is_first()) inputs_ = make_inputs(b_, *layers_, sizes_, w.microbatches);
  inputs_.resize(static_cast<std::size_t>(w.microbatches));
}

/// The embedding stands first: where the stage has the head too, a tied table is stored with the embedding.
std::vector<HeldPart> ForwardStage::held_parts() const {
  if (!step_.roles().pp) return whole_parts(step_.model, 1);
  std::vector<HeldPart> out;
  if (is_first()) out.push_back({kEmbeddingPart, 0, 1, parameters_of(step_.model, kEmbeddingPart)});
  for (int block = span().first; block < span().last; ++block)
    out.push_back({block, 0, 1, parameters_of(step_.model, block)});
  if (is_last()) out.push_back({kHeadPart, 0, 1, parameters_of(step_.model, kHeadPart)});
  return out;
}

BlockSpan ForwardStage::span() const {
  if (!step_.roles().pp) return {0, static_cast<int>(block_count(step_.model)), true, true};
  const auto k = static_cast<std::size_t>(stage_);
  return {step_.bounds[k], step_.bounds[k + 1], is_first(), is_last()};
}

TensorId ForwardStage::pass(std::int64_t m, KvCache* cache, LogitRows rows) {
  b_.set_microbatch(m);
  call(m);
  if (step_.work.packed) set_packing(m);
  NetworkInputs& in = inputs_[static_cast<std::size_t>(m)];
  if (!step_.roles().pp) {
    const TensorId out = lower_network(*layers_, in, sizes_, cache, rows);
    finish(m);
    return out;
  }
  const TensorId out = lower_span(*layers_, in, sizes_, span(), is_first() ? TensorId{} : receive(), cache, rows);
  ends_.push_back(OpId{b_.plan().ops.size() - 1});
  if (!is_last()) send(out);
  finish(m);
  return is_last() ? out : TensorId{};
}

Peer ForwardStage::peer(std::int64_t stage) const {
  return {static_cast<std::uint8_t>(step_.roles().pp.axes.front()), static_cast<std::int32_t>(stage - stage_)};
}

/// Not far ahead: no sooner than the pass before the last one has ended, so that two states at most wait.
TensorId ForwardStage::receive() {
  const Shape shape{layers_->packed_or(step_.arrangements.outside().outer_rows()), transformer().hidden};
  const TensorId x = b_.tensor("states", shape, {.dtype = step_.work.dtype});
  b_.add("recv.states", Recv{.peer = peer(stage_ - 1), .bytes = size_of(step_.work.dtype, shape.elements())},
         {writes(x)}, step_.parallel.blocking ? Stream::Compute : Stream::RecvPrev);
  if (!step_.parallel.blocking && ends_.size() > 1) b_.order(ends_[ends_.size() - 2]);
  return x;
}

void ForwardStage::send(TensorId states) {
  b_.add("send.states", Send{.peer = peer(stage_ + 1), .bytes = b_.plan().size(states)}, {reads(states)},
         step_.parallel.blocking ? Stream::Compute : Stream::SendNext);
}

std::vector<std::int64_t> ForwardStep::valid_rows(std::int64_t m) const {
  std::vector<std::int64_t> rows;
  for (std::int64_t b = 0; b < slices().batch; ++b) {
    const std::int64_t length =
        work.lengths.empty() ? work.sequence : work.lengths[static_cast<std::size_t>(m * slices().batch + b)];
    for (std::int64_t i = 0; i < length; ++i) rows.push_back(b * work.sequence + i);
  }
  return rows;
}

void ForwardStage::set_packing(std::int64_t m) {
  const std::vector<std::int64_t> valid = step_.valid_rows(m);
  const std::int64_t padded = step_.slices().batch * step_.work.sequence;
  Packing p{.rows = static_cast<std::int64_t>(valid.size()), .restored = step_.work.restored};
  p.valid = layers_->constant(fmt::format("valid.{}", m), Shape{p.rows}, DType::I32, [valid] {
    return std::vector<double>{valid.begin(), valid.end()};
  });
  p.padded = layers_->constant(fmt::format("padded.{}", m), Shape{padded}, DType::I32, [valid, padded] {
    std::vector<double> at(static_cast<std::size_t>(padded), -1.0);
    for (std::size_t i = 0; i < valid.size(); ++i) at[static_cast<std::size_t>(valid[i])] = double(i);
    return at;
  });
  layers_->set_packing(p);
}

/// The engine calls the stage for batch m; the first stage waits until there is room in the pipeline.
void ForwardStage::call(std::int64_t m) {
  const CallOptions& c = step_.work.calls;
  const bool limited = step_.roles().pp && c.in_flight > 0 && is_first() && m >= c.in_flight;
  if (!limited && c.call + c.first == Seconds{0}) return;
  std::vector<Operand> operands;
  if (limited) {
    const TensorId ticket = b_.tensor("ticket", Shape{1}, {.dtype = step_.work.dtype});
    b_.add("recv.ticket", Recv{.peer = peer(step_.stages() - 1), .tag = 1, .bytes = b_.plan().size(ticket)},
           {writes(ticket)}, Stream::RecvPrev);
    operands.push_back(reads(ticket));
  }
  b_.add("call", HostWork{.waits = false, .pause = c.call + (m == 0 ? c.first : Seconds{0})}, operands);
}

/// Batch m has left the last stage: the first one may take another.
void ForwardStage::finish(std::int64_t m) {
  const CallOptions& c = step_.work.calls;
  if (!step_.roles().pp || !is_last() || c.in_flight == 0 || m + c.in_flight >= step_.work.microbatches) return;
  const TensorId ticket = b_.tensor("ticket", Shape{1}, {.dtype = step_.work.dtype});
  b_.add("ticket", Fill{.elements = 1, .dtype = step_.work.dtype}, {writes(ticket)});
  b_.add("send.ticket", Send{.peer = peer(0), .tag = 1, .bytes = b_.plan().size(ticket)}, {reads(ticket)},
         Stream::SendNext);
}

void ForwardStage::end() {
  const Seconds pause = step_.work.calls.end;
  if (is_last() && pause > Seconds{0}) b_.add("answer", HostWork{.waits = false, .pause = pause}, {});
}

/// Parts lie on the ranks of tp, of each row one behind another.
TensorId ForwardStage::all_classes(TensorId logits) {
  const Split classes = scheme_of(step_.roles()).classes(step_.roles());
  if (!classes) return logits;
  const DType dtype = step_.work.dtype;
  const std::int64_t ranks = classes.ranks, rows = b_.plan().shape(logits)[0], each = b_.plan().shape(logits)[1];
  const TensorId parts = b_.tensor("logits.parts", Shape{ranks, rows, each}, {.dtype = dtype}),
                 whole = b_.tensor("logits.whole", Shape{rows, ranks * each}, {.dtype = dtype});
  b_.add("logits.gather", over(classes, CollectiveKind::AllGather, ranks * rows * each, dtype),
         {reads(logits), writes(parts)});
  b_.add("logits.order", SwapAxes{.outer = 1, .a = ranks, .b = rows, .inner = each, .dtype = dtype},
         {reads(parts), writes(whole)});
  return b_.view(whole, "logits.all",
                 Layout{.shape = Shape{rows, output_classes(step_.model)}, .strides = {ranks * each, 1}, .offset = 0});
}

TensorId ForwardStage::result(std::string_view port, std::int64_t each, std::int64_t cols, DType dtype) {
  const std::int64_t rows = step_.samples() * each;
  const TensorId t = b_.tensor(port, cols > 0 ? Shape{rows, cols} : Shape{rows},
                               {.dtype = dtype, .role = TensorRole::Result, .persistent = true});
  b_.port(std::string{port}, t, port_rows(step_.slices()));
  return t;
}

TensorId ForwardStage::part_of(TensorId result, std::int64_t m) {
  if (step_.work.microbatches == 1) return result;
  Shape shape = b_.plan().shape(result);
  shape.sizes[0] /= step_.work.microbatches;
  Layout layout = Layout::contiguous(shape);
  layout.offset = m * shape.elements();
  return b_.view(result, b_.plan().name_of(result), layout);
}

void ForwardStage::draw(const Sample& sample, TensorId logits, TensorId kept, TensorId next) {
  b_.add("logits.store", CopyRows{sample.rows, sample.vocab, sample.dtype}, {reads(logits), writes(kept)});
  b_.add("sample", sample, {reads(kept), writes(next)});
}

}  // namespace orrery
