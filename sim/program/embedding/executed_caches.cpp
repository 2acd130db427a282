// SPDX-License-Identifier: Apache-2.0
#include "sim/program/embedding/executed_caches.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <queue>
#include <thread>
#include <unordered_map>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

using RowBuffer = std::vector<std::byte>;

template <class T>
void put(RowBuffer& to, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  to.insert(to.end(), bytes.begin(), bytes.end());
}
void put(RowBuffer& to, std::int64_t value) { put(to, std::span<const std::int64_t>{&value, 1}); }

/// Reads a buffer from its start to its end.
class RowReader {
 public:
  explicit RowReader(const RowBuffer& from) : left_{from} {}
  bool done() const { return left_.empty(); }
  std::int64_t number() {
    std::int64_t value = 0;
    take(std::as_writable_bytes(std::span{&value, 1}));
    return value;
  }
  void numbers(std::span<double> out) { take(std::as_writable_bytes(out)); }

 private:
  void take(std::span<std::byte> out) {
    std::memcpy(out.data(), left_.data(), out.size());
    left_ = left_.subspan(out.size());
  }
  std::span<const std::byte> left_;
};

/// What a worker sends a server in a step.
struct RowMessage {
  RowBuffer pushes, requests;
};

/// Things that one thread puts and another one takes, in order.
template <class T>
class RowChannel {
 public:
  void put(T value) {
    {
      const std::lock_guard lock{mutex_};
      values_.push(std::move(value));
    }
    filled_.notify_one();
  }
  T take() {
    std::unique_lock lock{mutex_};
    filled_.wait(lock, [&] { return !values_.empty(); });
    T value = std::move(values_.front());
    values_.pop();
    return value;
  }

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::queue<T> values_;
};

constexpr std::int64_t kNoVersion = -1;  // of a request, on the wire

class CacheRun {
 public:
  CacheRun(const CachedTrainingOptions& o, const IdStream& stream, std::int64_t dim, std::vector<double> rows,
           const RowUpdates& updates)
      : o_{o},
        stream_{stream},
        dim_{dim},
        rows_{std::move(rows)},
        updates_{updates},
        up_(static_cast<std::size_t>(o.workers * o.servers)),
        down_(up_.size()),
        unsent_(static_cast<std::size_t>(o.workers)) {
    StepTraffic empty{.servers = o.servers, .up = {}, .down = {}};
    empty.up.resize(up_.size());
    empty.down.resize(up_.size());
    by_worker_.assign(static_cast<std::size_t>(o.workers),
                      std::vector<StepTraffic>(static_cast<std::size_t>(o.steps), empty));
  }

  ExecutedCaches run() {
    {
      std::vector<std::jthread> threads;
      for (std::int64_t s = 0; s < o_.servers; ++s) threads.emplace_back([this, s] { serve(s); });
      for (std::int64_t w = 0; w < o_.workers; ++w) threads.emplace_back([this, w] { work(w); });
    }
    for (const auto& of_worker : unsent_)
      for (const auto& [row, pending] : of_worker) add(row_at(row), pending);
    return {std::move(rows_), summed_traffic()};
  }

 private:
  /// The numbers of a copy, and what of them its server has not seen.
  struct Copy {
    std::vector<double> value, pending;
  };
  struct Worker {
    std::int64_t index = 0;
    WorkerCopies cache;
    std::unordered_map<std::int64_t, Copy> copies = {};
    std::vector<RowPush> pushes = {};
    std::vector<std::int64_t> dropped = {};
  };

  std::size_t link(std::int64_t worker, std::int64_t server) const {
    return static_cast<std::size_t>(worker * o_.servers + server);
  }
  std::span<double> row_at(std::int64_t row) {
    return std::span{rows_}.subspan(static_cast<std::size_t>(row * dim_), static_cast<std::size_t>(dim_));
  }
  static void add(std::span<double> to, std::span<const double> what) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += what[i];
  }

  void serve(std::int64_t server);
  void work(std::int64_t worker);
  void exchange(Worker& w, std::span<const std::int64_t> rows, StepTraffic& t);
  void train(Worker& w, std::int64_t step, std::span<const std::int64_t> rows);
  std::vector<RowMessage> pushed(Worker& w) const;
  void receive(const RowBuffer& reply, Worker& w) const;
  std::vector<StepTraffic> summed_traffic() const;

  const CachedTrainingOptions& o_;
  const IdStream& stream_;
  std::int64_t dim_;
  std::vector<double> rows_;  // a server touches its own alone
  const RowUpdates& updates_;
  std::vector<RowChannel<RowMessage>> up_;
  std::vector<RowChannel<RowBuffer>> down_;
  std::vector<std::vector<StepTraffic>> by_worker_;
  std::vector<std::vector<std::pair<std::int64_t, std::vector<double>>>> unsent_;  // when a worker is done
};

void CacheRun::serve(std::int64_t server) {
  RowVersions versions;
  std::vector<double> sum(static_cast<std::size_t>(dim_));
  for (std::int64_t step = 0; step < o_.steps; ++step) {
    std::vector<RowMessage> asked;
    for (std::int64_t w = 0; w < o_.workers; ++w) {
      asked.push_back(up_[link(w, server)].take());
      for (RowReader r{asked.back().pushes}; !r.done();) {
        const std::int64_t row = r.number(), updates = r.number();
        r.numbers(sum);
        versions.push({row, updates});
        add(row_at(row), sum);
      }
    }
    for (std::int64_t w = 0; w < o_.workers; ++w) {
      RowBuffer reply;
      for (RowReader r{asked[static_cast<std::size_t>(w)].requests}; !r.done();) {
        RowRequest request{r.number(), {}};
        if (const std::int64_t version = r.number(); version != kNoVersion) request.version = version;
        if (!versions.sends(request, o_.staleness)) continue;
        put(reply, request.row);
        put(reply, versions.of(request.row));
        put(reply, std::span<const double>{row_at(request.row)});
      }
      down_[link(w, server)].put(std::move(reply));
    }
  }
}

std::vector<RowMessage> CacheRun::pushed(Worker& w) const {
  std::vector<RowMessage> out(static_cast<std::size_t>(o_.servers));
  for (const RowPush& push : w.pushes) {
    Copy& copy = w.copies.at(push.row);
    RowBuffer& to = out[static_cast<std::size_t>(push.row % o_.servers)].pushes;
    put(to, push.row);
    put(to, push.updates);
    put(to, std::span<const double>{copy.pending});
    std::fill(copy.pending.begin(), copy.pending.end(), 0.0);
    if (!w.cache.copy(push.row)) w.copies.erase(push.row);
  }
  for (const std::int64_t row : w.dropped) w.copies.erase(row);
  return out;
}

void CacheRun::receive(const RowBuffer& reply, Worker& w) const {
  for (RowReader r{reply}; !r.done();) {
    const std::int64_t row = r.number(), version = r.number();
    Copy& copy = w.copies[row];
    copy.value.resize(static_cast<std::size_t>(dim_));
    copy.pending.resize(copy.value.size());
    r.numbers(copy.value);
    add(copy.value, copy.pending);
    w.cache.received(row, version);
  }
}

void CacheRun::exchange(Worker& w, std::span<const std::int64_t> rows, StepTraffic& t) {
  t.rows = std::ssize(rows), t.pushed = std::ssize(w.pushes), t.misses = -w.cache.misses();
  std::vector<RowMessage> out = pushed(w);
  for (const RowRequest& request : w.cache.read(rows)) {
    RowBuffer& to = out[static_cast<std::size_t>(request.row % o_.servers)].requests;
    put(to, request.row);
    put(to, request.version.value_or(kNoVersion));
  }
  t.misses += w.cache.misses();
  for (std::int64_t s = 0; s < o_.servers; ++s) {
    RowMessage& message = out[static_cast<std::size_t>(s)];
    t.up[link(w.index, s)] = std::ssize(message.pushes) + std::ssize(message.requests);
    up_[link(w.index, s)].put(std::move(message));
  }
  for (std::int64_t s = 0; s < o_.servers; ++s) {
    const RowBuffer reply = down_[link(w.index, s)].take();
    t.down[link(w.index, s)] = std::ssize(reply);
    t.sent += std::ssize(reply) / row_bytes(2 * dim_);
    receive(reply, w);
  }
}

void CacheRun::train(Worker& w, std::int64_t step, std::span<const std::int64_t> rows) {
  const auto dim = static_cast<std::size_t>(dim_);
  std::vector<double> values, changes(rows.size() * dim);
  for (const std::int64_t row : rows) {
    const std::vector<double>& value = w.copies.at(row).value;
    values.insert(values.end(), value.begin(), value.end());
  }
  updates_(step, w.index, rows, values, changes);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto change = std::span{changes}.subspan(i * dim, dim);
    add(w.copies.at(rows[i]).value, change);
    add(w.copies.at(rows[i]).pending, change);
  }
  w.dropped.clear();
  w.pushes = w.cache.write(rows, &w.dropped);
}

void CacheRun::work(std::int64_t worker) {
  const auto slots = static_cast<std::int32_t>(std::max(1.0, o_.cache * double(stream_.rows())));
  Worker w{worker, WorkerCopies{o_.policy, slots, o_.staleness}};
  for (std::int64_t step = 0; step < o_.steps; ++step) {
    const auto rows = unique_ids(stream_.batch((step * o_.workers + worker) * o_.batch, o_.batch));
    exchange(w, rows, by_worker_[static_cast<std::size_t>(worker)][static_cast<std::size_t>(step)]);
    train(w, step, rows);
  }
  auto& unsent = unsent_[static_cast<std::size_t>(worker)];
  for (auto& [row, copy] : w.copies) unsent.emplace_back(row, std::move(copy.pending));
  std::sort(unsent.begin(), unsent.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
}

std::vector<StepTraffic> CacheRun::summed_traffic() const {
  std::vector<StepTraffic> sum = by_worker_.front();
  for (std::size_t w = 1; w < by_worker_.size(); ++w)
    for (std::size_t step = 0; step < sum.size(); ++step) {
      const StepTraffic& t = by_worker_[w][step];
      for (std::size_t l = 0; l < t.up.size(); ++l) sum[step].up[l] += t.up[l], sum[step].down[l] += t.down[l];
      sum[step].rows += t.rows, sum[step].misses += t.misses, sum[step].sent += t.sent, sum[step].pushed += t.pushed;
    }
  return sum;
}

}  // namespace

ExecutedCaches execute_caches(const CachedTrainingOptions& options, const IdStream& stream, std::int64_t dim,
                              std::vector<double> rows, const RowUpdates& updates) {
  if (options.system != EmbeddingSystem::Het || options.warm) bug("only caches that start empty are executed");
  if (std::ssize(rows) != stream.rows() * dim) bug("rows of another size than the tables'");
  return CacheRun{options, stream, dim, std::move(rows), updates}.run();
}

}  // namespace orrery
