// SPDX-License-Identifier: Apache-2.0
// EnergonAI (arXiv 2209.02341; the released code where it says more): one engine calls the workers of all stages, which
// pass states on among themselves.
//   packed       padding is dropped behind the embedding; only between the projections into attention and the one back
//                samples stand side by side (distributed redundant computation elimination)
//   restored     its GPT (examples/gpt/gpt.py) puts padding back in front of the last norm: logits of all rows, which
//                ranks sum over inputs of the output matrix (Classifier1D)
//   in_flight    batches in the pipeline at once; stages take them in the order of the engine's tickets, and neither
//                wait for what they send nor for the engine (non-blocking pipeline parallelism)
//   peer_every   the last of each so many layers lies on a neighbouring device (peer memory pooling)
// The engine of the later releases hands batches on over bounded queues that are polled. What polling costs is taken as
// its mean: half an interval where a stage finds its queue empty, which the first batch of a run does at each stage,
// and at the two ends.
#include "sim/strategy/energonai.hpp"

#include <fmt/format.h>

#include "sim/base/option_error.hpp"
#include "sim/strategy/generate.hpp"
#include "sim/strategy/single_device_checks.hpp"

namespace orrery {
namespace {

enum class Handover : std::uint8_t { Tickets, Queues };
std::span<const EnumName<Handover>> enum_names(Handover) {
  static constexpr EnumName<Handover> names[] = {{Handover::Tickets, "tickets"}, {Handover::Queues, "queues"}};
  return names;
}

struct EnergonOptions {
  std::string mesh;
  bool packed = true, restored = false, blocking = false;
  std::int64_t in_flight = 0;
  Seconds call{100e-6};
  Handover handover = Handover::Tickets;
  Seconds poll{10e-3}, answer_poll{10e-3}, client_poll{50e-3};
  std::int64_t peer_every = 0;
  bool write_back = true;

  template <class V>
  void visit(V& v) {
    v.required("mesh", mesh, "pp (stages) and tp (matrices): `pp4`, `pp2 tp4`");
    v.field("packed", packed, "padding is computed in attention only, where the workload gives lengths");
    v.field(
        "restored", restored,
        "padding comes back behind the blocks, so that the last norm and the logits are of all rows, and ranks of tp "
        "sum logits over their inputs of an output matrix of its own, as in the released GPT");
    v.field("blocking", blocking,
            "a stage computes nothing while it sends and receives: the pipeline it is compared with");
    v.field("in_flight", in_flight, "batches in the pipeline at once; 0: two more than stages", at_least(0));
    v.field("call", call, "way of a call from the engine to a stage, per batch", at_least(Seconds{0}));
    v.field("handover", handover, "how batches come to stages: calls with tickets, or queues that are polled");
    v.field("poll", poll, "queues: interval in which a stage looks into an empty queue", at_least(Seconds{0}));
    v.field("answer_poll", answer_poll, "queues: interval in which the engine looks for results", at_least(Seconds{0}));
    v.field("client_poll", client_poll, "queues: interval in which who asked looks for an answer",
            at_least(Seconds{0}));
    v.field("peer_every", peer_every, "one layer in so many lies on a neighbouring device, at least 2; 0: none",
            at_least(0));
    v.field("write_back", write_back, "peer_every: layers return the way they came, although they are only read");
  }
};

class EnergonAi final : public Strategy {
 public:
  explicit EnergonAi(EnergonOptions o) : o_{std::move(o)} {
    const Roles roles = roles_of(parse_mesh(o_.mesh));
    for (const Axis& a : parse_mesh(o_.mesh).axes)
      if (a.name != "pp" && a.name != "tp")
        throw OptionError{
            {"mesh"}, fmt::format("the strategy `energonai` has no axis `{}`", a.name), "its axes are `pp` and `tp`"};
    if (o_.peer_every == 1)
      throw OptionError{
          {"peer_every"}, "peer_every 1 leaves no layer to hide a copy behind", "it can be 0, or 2 and more"};
    if (o_.blocking && !roles.pp)
      throw OptionError{{"blocking"}, "blocking is for pipelines", "leave it out, or use an axis pp"};
  }

  Plan train_step(const Model&, const TrainOptions&, const WorkspaceModel*) const override { refuse("train"); }
  GenerationPlans generation(const Model&, const GenerateOptions&, const WorkspaceModel*) const override {
    refuse("generate with a cache");
  }
  Plan serving_step(const Model&, const ServingStepOptions&, const WorkspaceModel*) const override { refuse("serve"); }
  Plan serving_swap(const Model&, const ServingStepOptions&, const ServingSwapOptions&,
                    const WorkspaceModel*) const override {
    refuse("serve");
  }
  Plan inference(const Model& model, const InferOptions& o, const WorkspaceModel* workspaces) const override {
    check_infer(model, o);
    ParallelOptions p;
    p.mesh = o_.mesh;
    p.blocking = o_.blocking;
    const std::int64_t stages = roles_of(parse_mesh(o_.mesh)).pp.ranks;
    InferenceEngine engine{.packed = o_.packed, .restored = o_.restored, .peer = {o_.peer_every, o_.write_back}};
    engine.calls.call = o_.call;
    engine.calls.in_flight = stages == 1 || o_.blocking ? 0 : o_.in_flight > 0 ? o_.in_flight : stages + 2;
    if (o_.handover == Handover::Queues) {
      engine.calls.first = o_.poll / 2;
      engine.calls.end = (o_.answer_poll + o_.client_poll) / 2;
    }
    return lower_inference(model, o, p, workspaces, engine);
  }
  Mesh mesh() const override { return parse_mesh(o_.mesh); }

 private:
  [[noreturn]] static void refuse(std::string_view what) {
    throw UserError{fmt::format("the strategy `energonai` does not {}", what), "its workload is `infer`"};
  }
  EnergonOptions o_;
};

}  // namespace

std::unique_ptr<Strategy> make_energonai(const Node& options) {
  EnergonOptions o;
  read_options(options, o);
  return std::make_unique<EnergonAi>(std::move(o));
}

std::vector<OptionInfo> energonai_options() { return describe_options<EnergonOptions>(); }

}  // namespace orrery
