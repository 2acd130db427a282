// SPDX-License-Identifier: Apache-2.0
#include "sim/program/serving/serving.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <queue>
#include <utility>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kOverloaded = 0.2;
constexpr std::int64_t kCheckEvery = 4096;  // steps
constexpr double kUnfair = 2;  // a replica with so many times the least load gets no request for its prefixes' sake

enum class Role { Both, Prefill, Decode };

struct Replica {
  Replica(Role r, std::size_t i, const ServeOptions& o, const KvBlocks::Sizes& blocks)
      : role{r}, index{i}, scheduler{o.replica, blocks} {}
  Role role;
  std::size_t index;
  Scheduler scheduler;
  StepBatch batch;       // that is being computed
  double ends = kNever;  // when it is
  double handed = 0;     // when the last token that was generated reaches its client
  double busy = 0, kv_area = 0, kv_since = 0, kv_held = 0;
};

/// A sequence on its way from a replica that read its prompt to one that decodes.
struct Transfer {
  double arrives = 0;
  std::int64_t order = 0;
  std::size_t to = 0;
  Sequence* sequence = nullptr;
  bool operator>(const Transfer& o) const { return arrives != o.arrives ? arrives > o.arrives : order > o.order; }
};

class Server {
 public:
  explicit Server(const ServingRequest& request) : r_{request}, o_{request.options} {
    const Role role = o_.prefill_replicas > 0 ? Role::Decode : Role::Both;
    for (std::int64_t i = 0; i < o_.prefill_replicas; ++i)
      replicas_.emplace_back(Role::Prefill, replicas_.size(), o_, r_.blocks);
    for (std::int64_t i = 0; i < o_.replicas; ++i) replicas_.emplace_back(role, replicas_.size(), o_, r_.blocks);
    pull();
  }

  ServingResult run() {
    for (;;) {
      const auto [time, replica] = next_end();
      const double arrival = may_send() ? next_arrival() : kNever;
      const double transfer = transfers_.empty() ? kNever : transfers_.top().arrives;
      const double now = std::min({time, arrival, transfer});
      if (now == kNever) break;
      now_ = now;
      if (arrival <= now)
        arrive();
      else if (transfer <= now)
        receive();
      else
        finish(*replica);
    }
    return result();
  }

 private:
  std::pair<double, Replica*> next_end() {
    Replica* first = nullptr;
    for (Replica& r : replicas_)
      if (!first || r.ends < first->ends) first = &r;
    return {first->ends, first};
  }

  void pull() {
    pending_ = r_.source.next();
    if (pending_) return;
    waiting_at_end_ = waiting();
    for (Replica& r : replicas_) {
      r.scheduler.close();
      if (r.ends == kNever) start(r);
    }
  }

  std::int64_t waiting() const {
    std::int64_t all = 0;
    for (const Replica& r : replicas_) all += static_cast<std::int64_t>(r.scheduler.waiting());
    return all;
  }

  /// Whether a client is free to send the next request.
  bool may_send() const {
    const std::int64_t under_way = result_.requests - result_.answered - result_.refused;
    return pending_ && (o_.traffic.clients == 0 || under_way < o_.traffic.clients);
  }

  /// When the next request reaches a scheduler: where clients wait for their answers, the one that has been free for
  /// longest sends it, and it is read first.
  double next_arrival() const {
    if (freed_.empty()) return std::max(pending_->arrival, now_);
    return std::max(pending_->arrival, freed_.front() + r_.times.front(pending_->prompt));
  }

  /// All requests of one moment before any replica decides: who is there first would otherwise start alone.
  void arrive() {
    std::vector<Replica*> woken;
    while (may_send() && next_arrival() <= now_) {
      pending_->arrival = next_arrival();
      if (!freed_.empty()) freed_.pop_front();
      ++result_.requests;
      Replica& r = route(*pending_);
      if (r.scheduler.can_hold(*pending_) && waiting() < o_.max_waiting) {
        r.scheduler.submit(std::move(*pending_));
        if (r.ends == kNever && std::find(woken.begin(), woken.end(), &r) == woken.end()) woken.push_back(&r);
      } else {
        ++result_.refused;
        free_client(now_);
      }
      result_.most_waiting = std::max(result_.most_waiting, waiting());
      pull();
    }
    for (Replica* r : woken)
      if (r->ends == kNever) start(*r);
  }

  Replica& route(const Request& request) {
    const std::size_t n = o_.prefill_replicas > 0 ? static_cast<std::size_t>(o_.prefill_replicas) : replicas_.size();
    if (n == 1) return replicas_.front();
    if (o_.routing == RequestRouting::RoundRobin) return replicas_[turn_++ % n];
    Replica* least = &least_loaded(0, n);
    if (o_.routing == RequestRouting::LeastLoaded || request.group < 0) return *least;
    Replica& home = replicas_[static_cast<std::size_t>(request.group) % n];
    const bool crowded =
        double(home.scheduler.load()) > kUnfair * double(least->scheduler.load() + request.prompt + request.output);
    return crowded ? *least : home;
  }

  Replica& least_loaded(std::size_t first, std::size_t last) {
    return *std::min_element(
        replicas_.begin() + static_cast<std::ptrdiff_t>(first), replicas_.begin() + static_cast<std::ptrdiff_t>(last),
        [](const Replica& a, const Replica& b) { return a.scheduler.load() < b.scheduler.load(); });
  }

  void note_kv(Replica& r) {
    const double held = double(r.scheduler.blocks().held()) / double(std::max<std::int64_t>(1, r_.blocks.device));
    result_.peak_kv = std::max(result_.peak_kv, held);
    r.kv_area += r.kv_held * (now_ - r.kv_since);
    r.kv_since = now_;
    r.kv_held = held;
  }

  void start(Replica& r) {
    r.batch = r.scheduler.begin();
    note_kv(r);
    r.ends = kNever;
    if (r.batch.is_empty()) return show(r, 0);
    double seconds = r_.times.step(r.batch.shape);
    if (const std::size_t moved = r.batch.to_host.size() + r.batch.from_host.size(); moved > 0)
      seconds += r_.times.swap(static_cast<std::int64_t>(moved));
    r.busy += seconds;
    r.ends = now_ + seconds;
    result_.batch.add(double(r.batch.shape.rows));
    show(r, seconds);
    if (++result_.steps % kCheckEvery == 0 && r_.check) r_.check();
  }

  void show(const Replica& r, double seconds) const {
    if (r_.on_step)
      r_.on_step({r.index, now_, seconds, r.batch.shape, r.kv_held, static_cast<std::int64_t>(r.scheduler.running()),
                  static_cast<std::int64_t>(r.scheduler.waiting() + r.scheduler.swapped())});
  }

  void finish(Replica& r) {
    const double answer_time = r_.times.answer();
    double gap = 0;  // of the tokens that follow theirs after the same time
    std::int64_t alike = 0;
    for (const Part& p : r.batch.parts) {
      if (!p.emits) continue;
      Sequence& s = *p.sequence;
      r.handed = std::max(r.handed, now_) + answer_time;
      if (s.first_token < 0) {
        s.first_token = r.handed;
      } else {
        const double since = r.handed - s.last_token;
        if (since != gap && alike > 0) result_.itl.add(gap, std::exchange(alike, 0));
        gap = since;
        ++alike;
      }
      s.last_token = r.handed;
    }
    if (alike > 0) result_.itl.add(gap, alike);
    auto done = r.scheduler.end(r.batch);
    for (const auto& s : done) answer(*s, r);
    if (r.role == Role::Prefill) hand_over(r, done);
    start(r);
  }

  /// Whoever has its first token goes on elsewhere.
  void hand_over(Replica& r, const std::vector<std::unique_ptr<Sequence>>& done) {
    const auto is_done = [&](const Sequence* s) {
      return std::any_of(done.begin(), done.end(), [&](const auto& d) { return d.get() == s; });
    };
    const auto first = static_cast<std::size_t>(o_.prefill_replicas);
    for (const Part& p : r.batch.parts) {
      if (!p.emits || is_done(p.sequence)) continue;
      std::unique_ptr<Sequence> s = r.scheduler.hand_over(*p.sequence);
      Replica& to = least_loaded(first, replicas_.size());
      transfers_.push({now_ + r_.times.hand_over(s->computed), transferred_++, to.index, s.get()});
      travelling_.push_back(std::move(s));
    }
  }

  void receive() {
    const Transfer t = transfers_.top();
    transfers_.pop();
    const auto at =
        std::find_if(travelling_.begin(), travelling_.end(), [&](const auto& s) { return s.get() == t.sequence; });
    Replica& r = replicas_[t.to];
    r.scheduler.accept(std::move(*at));
    travelling_.erase(at);
    if (r.ends == kNever) start(r);
  }

  void free_client(double when) {
    if (o_.traffic.clients > 0) freed_.insert(std::upper_bound(freed_.begin(), freed_.end(), when), when);
  }

  /// Requests are known when they arrive here: they came as much earlier as it took to read them.
  void answer(const Sequence& s, const Replica& r) {
    Answer a{.id = s.request.id,
             .prompt = s.request.prompt,
             .output = s.request.output,
             .shared = s.shared,
             .preemptions = s.preemptions,
             .replica = static_cast<std::int64_t>(r.index),
             .arrival = s.request.arrival - r_.times.front(s.request.prompt),
             .first_token = s.first_token,
             .last_token = s.last_token};
    if (find_scheduler(o_.replica.scheduler).together) a.last_token = r.handed;
    ++result_.answered;
    free_client(a.last_token);
    result_.prompt_tokens += a.prompt;
    result_.output_tokens += a.output;
    result_.shared_tokens += a.shared;
    result_.ttft.add(a.ttft());
    result_.e2e.add(a.e2e());
    if (a.output > 1) result_.tpot.add(a.tpot());
    result_.within_slo += a.ttft() <= o_.slo.ttft.base() && a.tpot() <= o_.slo.tpot.base();
    if (r_.on_answer) r_.on_answer(a);
  }

  ServingResult result() {
    result_.seconds = now_;
    for (const Replica& r : replicas_) result_.seconds = std::max(result_.seconds, r.handed);
    result_.waiting_at_end = waiting_at_end_;
    result_.overlong = r_.source.overlong();
    result_.trace_goes_on = r_.source.has_more();
    for (Replica& r : replicas_) {
      if (r.scheduler.running() + r.scheduler.waiting() + r.scheduler.swapped() > 0)
        bug("a replica stopped with requests unanswered");
      result_.preemptions += r.scheduler.preemptions();
      result_.busy += r.busy;
      result_.mean_kv += r.kv_area;
    }
    const double all = now_ * double(replicas_.size());
    result_.busy = all > 0 ? result_.busy / all : 0;
    result_.mean_kv = all > 0 ? result_.mean_kv / all : 0;
    return std::move(result_);
  }

  const ServingRequest& r_;
  const ServeOptions& o_;
  std::deque<Replica> replicas_;
  std::priority_queue<Transfer, std::vector<Transfer>, std::greater<>> transfers_;
  std::vector<std::unique_ptr<Sequence>> travelling_;
  std::optional<Request> pending_;
  ServingResult result_;
  double now_ = 0;
  std::deque<double> freed_;  // when clients had their answers that have not sent again
  std::size_t turn_ = 0;
  std::int64_t transferred_ = 0, waiting_at_end_ = 0;
};

}  // namespace

bool ServingResult::is_overloaded() const {
  return refused > 0 || (waiting_at_end > 1 && double(waiting_at_end) > kOverloaded * double(requests));
}

ServingResult serve(const ServingRequest& request) { return Server{request}.run(); }

}  // namespace orrery
