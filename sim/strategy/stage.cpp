// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/stage.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {

StageLowering::StageLowering(PlanBuilder& builder, const StepPlan& step, int stage, std::int64_t pairs)
    : b_{builder},
      step_{step},
      stage_{stage},
      pairs_{pairs},
      sizes_{step.slices().batch, step.train.sequence / step.roles().cp.ranks,
             target_length(step.train.target_sequence, step.train.sequence)} {
  weights_ = std::make_unique<ParameterStorage>(b_, step.model, step.arrangements, storage_options());
}

std::int64_t StageLowering::passes_of(int stage, int chunk) const {
  const auto& list = step_.schedule->actions[static_cast<std::size_t>(stage)];
  return std::count_if(list.begin(), list.end(),
                       [&](const Action& a) { return a.chunk == chunk && a.pass == Pass::Forward; });
}

/// The embedding stands first: where a stage has the head too, a tied table is stored with the embedding.
std::vector<HeldPart> StageLowering::held_parts() const {
  std::vector<HeldPart> out;
  const Schedule& s = *step_.schedule;
  std::vector<int> chunks;
  for (int c = 0; c < s.chunks; ++c) {
    if (s.part(stage_, c) == 0)
      chunks.insert(chunks.begin(), c);
    else
      chunks.push_back(c);
  }
  const auto held = [&](ParameterId id) {
    return std::any_of(out.begin(), out.end(), [&](const HeldPart& p) {
      return std::find(p.parameters.begin(), p.parameters.end(), id) != p.parameters.end();
    });
  };
  for (const int c : chunks) {
    const int k = s.part(stage_, c);
    if (k == 0) out.push_back({kEmbeddingPart, c, passes_of(stage_, c), parameters_of(step_.model, kEmbeddingPart)});
    for (int block = step_.bounds[static_cast<std::size_t>(k)]; block < step_.bounds[static_cast<std::size_t>(k) + 1];
         ++block)
      out.push_back({block, c, passes_of(stage_, c), parameters_of(step_.model, block)});
    if (k + 1 != s.parts) continue;
    HeldPart head{kHeadPart, c, passes_of(stage_, c), {}};
    for (const ParameterId id : parameters_of(step_.model, kHeadPart)) {
      head.shares_embedding = head.shares_embedding || held(id);
      if (!held(id)) head.parameters.push_back(id);
    }
    out.push_back(std::move(head));
  }
  return out;
}

/// Parameters that several stages keep copies of: the tied table, and everything in a pipeline of two directions.
std::unordered_map<std::uint32_t, Group> StageLowering::ties() const {
  std::unordered_map<std::uint32_t, Group> out;
  const Schedule& s = *step_.schedule;
  const auto tie = [&](ParameterId id, const std::vector<std::int64_t>& stages) {
    if (stages.size() > 1)
      out[id.value] = {fmt::format("pp{}", fmt::join(stages, "+")),
                       {static_cast<std::uint8_t>(step_.roles().pp.axes.front())},
                       {stages}};
  };
  const auto stages_of = [&](std::initializer_list<int> parts) {
    std::vector<std::int64_t> stages;
    for (const int part : parts)
      for (const Home& h : s.copies(part)) stages.push_back(h.stage);
    std::sort(stages.begin(), stages.end());
    stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
    return stages;
  };
  for (int k = 0; k < s.parts; ++k) {
    const std::vector<std::int64_t> stages = stages_of({k});
    if (stages.size() == 1) continue;
    for (int block = step_.bounds[static_cast<std::size_t>(k)]; block < step_.bounds[static_cast<std::size_t>(k) + 1];
         ++block)
      for (const ParameterId id : parameters_of(step_.model, block)) tie(id, stages);
  }
  const std::vector<ParameterId> head = parameters_of(step_.model, kHeadPart);
  for (const ParameterId id : head) tie(id, stages_of({s.parts - 1}));
  for (const ParameterId id : parameters_of(step_.model, kEmbeddingPart)) {
    const bool in_head = std::find(head.begin(), head.end(), id) != head.end();
    tie(id, in_head ? stages_of({0, s.parts - 1}) : stages_of({0}));
  }
  return out;
}

ParameterStorage::Options StageLowering::storage_options() const {
  const DType dtype = dtype_of(step_.train.dtype);
  const bool is_low = dtype == DType::BF16 || dtype == DType::F16;
  ParameterStorage::Options o{.dtype = dtype,
                              .gradient = is_low && step_.train.wide_gradients ? DType::F32 : dtype,
                              .trains = true,
                              .frozen = step_.train.frozen,
                              .separate = false,
                              .data = step_.parallel.data,
                              .parts = {},
                              .ties = {}};
  o.separate = step_.slices().mesh.size() == 1;
  o.parts = step_.schedule ? held_parts() : whole_parts(step_.model, step_.train.microbatches);
  if (step_.schedule) o.ties = ties();
  return o;
}

/// With one microbatch one of two directions has nothing to do.
bool StageLowering::runs(int part) const {
  if (!step_.schedule) return true;
  const int parts = step_.schedule->parts, wanted = part == kEmbeddingPart ? 0 : parts - 1;
  for (int c = 0; c < step_.schedule->chunks; ++c)
    if (step_.schedule->part(stage_, c) == wanted && passes_of(stage_, c) > 0) return true;
  return false;
}

DocumentSizes StageLowering::document_sizes() const {
  if (!step_.packed || step_.packed->documents == 0) return {};
  return {step_.packed->documents, pairs_};
}

Layers StageLowering::make_layers(Tape& tape, std::int64_t microbatch) {
  const TrainOptions& o = step_.train;
  Layers layers{tape,
                step_.arrangements,
                *weights_,
                {.sequence = sizes_.sequence,
                 .dtype = dtype_of(o.dtype),
                 .dropout = o.dropout,
                 .attention_dropout = o.attention_dropout,
                 .dropout_masks = o.dropout_masks,
                 .seed = o.seed,
                 .microbatch = microbatch,
                 .training = true,
                 .stored_scores = o.stored_scores,
                 .eager_attention = o.eager_attention,
                 .narrow = o.narrow,
                 .keep_narrow = o.keep_narrow,
                 .loss = o.loss,
                 .recompute_parts = o.recompute_parts,
                 .chain = step_.chain ? &*step_.chain : nullptr,
                 .room = {.capacity_factor = o.capacity_factor,
                          .capacity_groups = o.capacity_groups,
                          .buffer = step_.parallel.expert_buffer},
                 .gating = step_.gating ? &*step_.gating : nullptr,
                 .expert_overlap = step_.parallel.expert_overlap,
                 .waits_for_experts = o.waits_for_experts,
                 .weigh_inside = o.weigh_inside,
                 .copied_values = o.copied_values,
                 .documents = document_sizes()}};
  if (!documents_.empty()) layers.set_documents(documents_[static_cast<std::size_t>(microbatch)]);
  return layers;
}

/// Tables of positions are read where the embedding is; blocks that turn by positions are everywhere.
void StageLowering::make_documents(Layers& layers) {
  const auto& t = std::get<Transformer>(step_.model.network);
  const auto turns = [](const Block& b) { return b.attention.rope || b.attention.growth; };
  const bool reads_table = !t.positions.is_none() && !inputs_.empty();
  documents_ = make_document_rows(b_, layers, sizes_, step_.train.microbatches,
                                  reads_table || std::any_of(t.decoder.begin(), t.decoder.end(), turns));
  if (!reads_table) return;
  for (std::size_t m = 0; m < inputs_.size(); ++m) inputs_[m].positions = documents_[m].positions;
}

void StageLowering::make_ports() {
  const TrainOptions& o = step_.train;
  const DType dtype = dtype_of(o.dtype);
  Tape tape{b_, weights_->targets()};
  Layers layers = make_layers(tape, 0);
  if (runs(kEmbeddingPart)) inputs_ = make_inputs(b_, layers, sizes_, o.microbatches);
  if (document_sizes().count > 0) make_documents(layers);
  if (!runs(kHeadPart)) return;
  const std::int64_t rows = output_rows(step_.model, sizes_), classes = output_classes(step_.model);
  const TensorId targets =
      b_.tensor("input.targets", Shape{o.microbatches, rows},
                {.dtype = classes == 1 ? dtype : DType::I32, .role = TensorRole::Input, .persistent = true});
  b_.port("targets", targets, port_rows(step_.slices().of_logits()));
  for (std::int64_t m = 0; m < o.microbatches; ++m) {
    Layout slice = Layout::contiguous(Shape{rows});
    slice.offset = m * rows;
    targets_.push_back(b_.view(targets, "input.targets", slice));
  }
  const DType loss = loss_type(o.loss, dtype);
  loss_ = b_.tensor("loss", Shape{1}, {.dtype = loss, .role = TensorRole::Result, .persistent = true});
  b_.port("loss", loss_);
  b_.set_phase(Phase::Forward);
  b_.add("loss.zero", Fill{.elements = 1, .dtype = loss}, {writes(loss_)});
}

void StageLowering::lower_loss(Layers& layers, TensorId logits, std::int64_t microbatch) {
  const TrainOptions& o = step_.train;
  const NetworkSizes all{o.batch, o.sequence, target_length(o.target_sequence, o.sequence)};
  const auto& predict = step_.parallel.data.predict;
  const double points = predict ? double(predict->points) : 1;  // each is over a part of the batch of its own
  layers.add_loss(logits, targets_[static_cast<std::size_t>(microbatch)], loss_, output_classes(step_.model),
                  points / double(output_rows(step_.model, all)));
}

/// Each replica has added up the loss of its own rows.
void StageLowering::finish_loss() {
  if (loss_.is_none() || step_.parallel.data.predict) return;  // a rank tells that of its own point
  const Roles& r = step_.roles();
  std::vector<std::int8_t> axes = step_.slices().of_logits().sample_axes();
  if (r.cp) axes.push_back(r.cp.axes.front());
  const auto sum = [&](std::string_view name, GroupId group) {
    const DType dtype = b_.plan().tensors[loss_.index()].dtype;
    b_.add(name, Collective{.group = group, .bytes = size_of(dtype, 1), .dtype = dtype}, {updates(loss_)},
           Stream::Comm);
  };
  b_.set_phase(Phase::Optimizer);
  if (!axes.empty()) sum("loss.sum", b_.group_over(axes));
  if (!step_.schedule) return;
  std::vector<std::int64_t> stages;
  for (const Home& h : step_.schedule->copies(step_.schedule->parts - 1))
    if (passes_of(h.stage, h.chunk) > 0) stages.push_back(h.stage);
  std::sort(stages.begin(), stages.end());
  if (stages.size() > 1)
    sum("loss.sum_directions",
        b_.group(
            {fmt::format("pp{}", fmt::join(stages, "+")), {static_cast<std::uint8_t>(r.pp.axes.front())}, {stages}}));
}

/// All microbatches but the first and the last are alike.
void StageLowering::run_whole() {
  const std::int64_t last = step_.train.microbatches - 1;
  std::optional<OpBlock> block;
  for (std::int64_t m = 0; m <= last; ++m) {
    b_.set_microbatch(m);
    if (block && m < last) {
      b_.repeat(*block, replacements(given_to(1), given_to(m)));
      weights_->skip_pass(0);
      continue;
    }
    const OpBlock begun = b_.begin_block();
    b_.set_phase(Phase::Forward);
    Tape tape{b_, weights_->targets()};
    Layers layers = make_layers(tape, m);
    lower_loss(layers, lower_network(layers, inputs_[static_cast<std::size_t>(m)], sizes_), m);
    wait_for_loss();
    tape.differentiate();
    if (m == 1 && may_repeat()) block = b_.end_block(begun);
  }
}

void StageLowering::run() {
  make_ports();
  weights_->begin_points(step_.train.optimizer);
  if (step_.schedule)
    run_schedule();
  else
    run_whole();
  finish_loss();
  weights_->update(step_.train.optimizer);
}

}  // namespace orrery
