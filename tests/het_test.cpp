// SPDX-License-Identifier: Apache-2.0
#include "sim/program/embedding/het.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <numeric>

#include "sim/program/embedding/embedding_traffic.hpp"
#include "sim/program/embedding/executed_caches.hpp"

using namespace orrery;

namespace {

const std::vector<CategoricalField> kFields = {{400, 1.1}, {60, 0.7}, {3, 0}};

using Numbers = std::vector<double>;

void add(Numbers& to, const Numbers& what) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += what[i];
}

/// Workers with LRU caches and one server, with maps and lists, one after another.
struct StraightRun {
  struct Copy {
    std::int64_t version = 0, updates = 0;
    Numbers value, pending;
  };
  struct Push {
    std::int64_t row, updates;
    Numbers sum;
  };
  struct Worker {
    std::map<std::int64_t, Copy> copies;
    std::list<std::int64_t> recent;  // the last used one is the last
    std::vector<Push> pushes;
  };

  const CachedTrainingOptions& o;
  const IdStream& stream;
  std::int64_t dim;
  RowUpdates change;
  std::map<std::int64_t, Numbers> server;  // rows that were updated
  std::map<std::int64_t, std::int64_t> versions = {};
  std::vector<Worker> workers = std::vector<Worker>(static_cast<std::size_t>(o.workers));
  std::int64_t sent = 0, pushed = 0, rows = 0;  // of the last step

  void step(std::int64_t step) {
    sent = pushed = rows = 0;
    for (Worker& w : workers)
      for (const Push& p : w.pushes) {
        versions[p.row] += p.updates;
        add(server.at(p.row), p.sum);
        ++pushed;
      }
    for (std::int64_t w = 0; w < o.workers; ++w) train(step, w);
  }
  void train(std::int64_t step, std::int64_t index) {
    Worker& w = workers[static_cast<std::size_t>(index)];
    w.pushes.clear();
    const auto batch = unique_ids(stream.batch((step * o.workers + index) * o.batch, o.batch));
    rows += std::ssize(batch);
    std::map<std::int64_t, Copy> fetched;
    Numbers values, changes(batch.size() * static_cast<std::size_t>(dim));
    for (const std::int64_t row : batch) {
      const bool hit = w.copies.contains(row);
      Copy& copy = hit ? w.copies[row] : fetched[row];
      if (hit) w.recent.remove(row), w.recent.push_back(row);
      if (!hit || versions[row] - copy.version > o.staleness) {
        ++sent;
        copy.version = versions[row];
        copy.pending.resize(static_cast<std::size_t>(dim));
        copy.value = server.at(row);
        add(copy.value, copy.pending);
      }
      values.insert(values.end(), copy.value.begin(), copy.value.end());
    }
    change(step, index, batch, values, changes);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      Copy& copy = w.copies.contains(batch[i]) ? w.copies[batch[i]] : fetched[batch[i]];
      const Numbers one(changes.begin() + std::ptrdiff_t(i) * dim, changes.begin() + std::ptrdiff_t(i + 1) * dim);
      add(copy.value, one);
      add(copy.pending, one);
      if (++copy.updates > o.staleness) flush(w, batch[i], copy);
    }
    for (auto& [row, copy] : fetched) let_in(w, row, copy);
  }
  void let_in(Worker& w, std::int64_t row, Copy& copy) const {
    if (std::ssize(w.copies) == std::max<std::int64_t>(1, std::int64_t(o.cache * double(stream.rows())))) {
      flush(w, w.recent.front(), w.copies[w.recent.front()]);
      w.copies.erase(w.recent.front());
      w.recent.pop_front();
    }
    w.copies[row] = copy;
    w.recent.push_back(row);
  }
  static void flush(Worker& w, std::int64_t row, Copy& copy) {
    if (copy.updates > 0) w.pushes.push_back({row, copy.updates, copy.pending});
    copy.version += copy.updates;
    copy.updates = 0;
    copy.pending.assign(copy.pending.size(), 0.0);
  }
  /// All rows in the end, with what workers have not told the server.
  Numbers all() {
    for (Worker& w : workers) {
      std::map<std::int64_t, Numbers> unsent;
      for (const Push& p : w.pushes) unsent[p.row] = p.sum;
      for (const auto& [row, copy] : w.copies)
        if (copy.updates > 0) unsent[row] = copy.pending;
      for (const auto& [row, sum] : unsent) add(server.at(row), sum);
    }
    Numbers out;
    for (const auto& [row, value] : server) out.insert(out.end(), value.begin(), value.end());
    return out;
  }
};

Numbers initial_rows(const IdStream& stream, std::int64_t dim) {
  Random random{17};
  Numbers rows(static_cast<std::size_t>(stream.rows() * dim));
  for (double& x : rows) x = random.normal(0, 0.3);
  return rows;
}

StraightRun straight(const CachedTrainingOptions& o, const IdStream& stream, std::int64_t dim, RowUpdates change) {
  StraightRun run{.o = o, .stream = stream, .dim = dim, .change = std::move(change), .server = {}};
  const Numbers rows = initial_rows(stream, dim);
  for (std::int64_t row = 0; row < stream.rows(); ++row)
    run.server[row] = Numbers(rows.begin() + row * dim, rows.begin() + (row + 1) * dim);
  return run;
}

/// Descent of a logistic loss: the logit of a sample is the sum of its rows' products with (1, 1/2, 1/3 …), every third
/// sample is a click, and the gradient is that of the mean over `samples`.
void descend(const IdStream& stream, std::int64_t first, std::int64_t count, std::int64_t samples,
             std::span<const std::int64_t> rows, std::span<const double> values, std::span<double> changes) {
  const std::size_t dim = values.size() / rows.size();
  for (std::int64_t i = first; i < first + count; ++i) {
    std::vector<std::size_t> places;
    double logit = 0;
    for (const std::int64_t id : stream.batch(i, 1)) {
      places.push_back(static_cast<std::size_t>(std::lower_bound(rows.begin(), rows.end(), id) - rows.begin()));
      for (std::size_t d = 0; d < dim; ++d) logit += values[places.back() * dim + d] / double(d + 1);
    }
    const double error = 1 / (1 + std::exp(-logit)) - (i % 3 == 0);
    for (const std::size_t place : places)
      for (std::size_t d = 0; d < dim; ++d) changes[place * dim + d] -= 2.0 * error / double(d + 1) / double(samples);
  }
}

RowUpdates descent_of(const IdStream& stream, const CachedTrainingOptions& o) {
  return [&stream, &o](std::int64_t step, std::int64_t worker, std::span<const std::int64_t> rows,
                       std::span<const double> values, std::span<double> changes) {
    descend(stream, (step * o.workers + worker) * o.batch, o.batch, o.batch * o.workers, rows, values, changes);
  };
}

CachedTrainingOptions small(std::int64_t staleness, double cache) {
  CachedTrainingOptions o;
  o.workers = 3;
  o.servers = 2;
  o.batch = 20;
  o.staleness = staleness;
  o.cache = cache;
  o.policy = CachePolicy::Lru;
  o.warm = false;
  return o;
}

std::int64_t sum_of(const std::vector<std::int64_t>& values) {
  std::int64_t sum = 0;
  for (std::int64_t v : values) sum += v;
  return sum;
}

}  // namespace

TEST_CASE("workers and servers exchange the rows that straight code would", "[embedding]") {
  const std::int64_t staleness = GENERATE(0, 1, 3, 20);
  const double cache = GENERATE(0.02, 0.1, 0.5, 1.0);
  INFO("staleness " << staleness << ", cache " << cache);
  const CachedTrainingOptions o = small(staleness, cache);
  const IdStream stream{kFields, 4};
  EmbeddingTraffic traffic{o, stream, 8, 100};
  StraightRun run = straight(o, stream, 1, [](auto&&...) {});
  for (std::int64_t step = 0; step < 60; ++step) {
    run.step(step);
    const StepTraffic t = traffic.step();
    REQUIRE(t.rows == run.rows);
    REQUIRE(t.sent == run.sent);
    REQUIRE(t.pushed == run.pushed);
    // A request has 16 B a row, a row 8 + 8 + 4·8 B.
    REQUIRE(sum_of(t.up) == 16 * t.rows + 48 * t.pushed);
    REQUIRE(sum_of(t.down) == 48 * t.sent);
    REQUIRE(t.reduced == 400);
  }
}

// What the paper promises: a copy that is read misses at most s updates of its row that servers know, servers miss at
// most s of it, and so two copies differ by 2s clocks at most; whoever comes when.
TEST_CASE("copies that are read differ by at most twice the staleness", "[embedding]") {
  const std::int64_t staleness = GENERATE(0, 1, 4, 10);
  const CachePolicy policy = GENERATE(CachePolicy::Lru, CachePolicy::Lfu, CachePolicy::LightLfu);
  INFO("staleness " << staleness << ", " << enum_name(policy));
  const IdStream stream{kFields, 9};
  constexpr std::size_t kWorkers = 4;
  std::vector<WorkerCopies> workers;
  for (std::size_t w = 0; w < kWorkers; ++w) workers.emplace_back(policy, 150, staleness);
  RowVersions versions;
  std::map<std::int64_t, std::map<std::size_t, std::int64_t>> clocks;  // of each row, when a worker read it last
  Random random{3};
  std::int64_t apart = 0, behind = 0, ahead = 0;
  for (std::int64_t step = 0; step < 3000; ++step) {
    const std::size_t w = random.below(kWorkers);  // in any order
    const auto rows = unique_ids(stream.batch(step * 10, 10));
    for (const RowRequest& request : workers[w].read(rows))
      if (versions.sends(request, staleness)) workers[w].received(request.row, versions.of(request.row));
    for (const std::int64_t row : rows) {
      const auto copy = workers[w].copy(row);
      if (!copy) continue;  // fetched now
      behind = std::max(behind, versions.of(row) - copy->version);
      ahead = std::max(ahead, copy->clock() - versions.of(row));
      for (std::size_t other = 0; other < kWorkers; ++other)
        if (const auto theirs = workers[other].copy(row);
            theirs && versions.of(row) - theirs->version <= staleness)  // what it would read now
          apart = std::max(apart, std::abs(theirs->clock() - copy->clock()));
    }
    for (const RowPush& push : workers[w].write(rows)) versions.push(push);
  }
  CHECK(behind <= staleness);
  CHECK(ahead <= staleness);
  CHECK(apart <= 2 * staleness);
  if (staleness > 0) CHECK(apart > staleness);
}

TEST_CASE("without a cache each row of a batch goes both ways, and dense parameters too where servers have them",
          "[embedding]") {
  CachedTrainingOptions o = small(0, 0.1);
  const IdStream stream{kFields, 4};
  std::int64_t before = 0;
  o.system = EmbeddingSystem::Hybrid;
  EmbeddingTraffic hybrid{o, stream, 8, 100};
  o.system = EmbeddingSystem::ParameterServer;
  EmbeddingTraffic servers{o, stream, 8, 100};
  o.system = EmbeddingSystem::AllGather;
  EmbeddingTraffic gather{o, stream, 8, 100};
  for (int step = 0; step < 5; ++step) {
    const StepTraffic h = hybrid.step(), p = servers.step(), g = gather.step();
    CHECK(sum_of(h.down) == 48 * h.rows);
    CHECK(sum_of(h.up) == 16 * h.rows + 48 * before);
    CHECK(sum_of(p.down) == sum_of(h.down) + 3 * 400);
    CHECK(sum_of(p.up) == sum_of(h.up) + 3 * 400);
    CHECK((h.reduced == 400 && p.reduced == 0 && g.reduced == 400));
    CHECK(g.gathered == 20 * 3 * (8 * 4 + 8));
    CHECK(sum_of(g.up) + sum_of(g.down) == 0);
    before = h.rows;
  }
}

TEST_CASE("warm rows leave in order of their probabilities, coldest first, but for those that left already",
          "[embedding]") {
  const IdStream stream{kFields, 1};
  WarmRows warm{stream, 100};
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < stream.rows(); ++row)
    if (warm.contains(row)) rows.push_back(row);
  REQUIRE(rows.size() == 100);
  for (std::int64_t row : {0, 5, 401}) warm.take(row);
  std::erase_if(rows, [](std::int64_t row) { return row == 0 || row == 5 || row == 401; });
  double last = 0;
  while (const auto row = warm.take_coldest()) {
    CHECK(stream.probability(*row) >= last);
    last = stream.probability(*row);
    REQUIRE(std::erase(rows, *row) == 1);
    CHECK_FALSE(warm.contains(*row));
  }
  CHECK(rows.empty());
  CHECK(warm.size() == 0);
}

// A full cache that starts warm lets one row go for each that comes: so many come and leave as if all were there from
// the start, and a step later.
TEST_CASE("a warm cache is full from the first step", "[embedding]") {
  CachedTrainingOptions o = small(1'000'000, 0.3);
  o.warm = true;
  o.policy = GENERATE(CachePolicy::Lru, CachePolicy::Lfu);
  const IdStream stream{kFields, 4};
  EmbeddingTraffic traffic{o, stream, 8, 0};
  std::int64_t missed = 0, step = 0;
  for (; step < 50; ++step) {
    const StepTraffic t = traffic.step();
    REQUIRE(t.pushed <= missed);  // all that leave are pushed but warm ones without updates
    REQUIRE(t.pushed >= missed - 1);
    REQUIRE(t.sent >= t.misses);
    missed = t.misses;
  }
  CHECK(missed > 0);
}

TEST_CASE("threads that exchange rows compute what straight code does, with the bytes that were foretold",
          "[embedding]") {
  CachedTrainingOptions o = small(GENERATE(0, 2, 9), GENERATE(0.05, 0.5));
  o.steps = 40;
  INFO("staleness " << o.staleness << ", cache " << o.cache);
  const IdStream stream{kFields, 6};
  constexpr std::int64_t kDim = 3;
  const RowUpdates change = descent_of(stream, o);
  const ExecutedCaches ran = execute_caches(o, stream, kDim, initial_rows(stream, kDim), change);
  StraightRun run = straight(o, stream, kDim, change);
  EmbeddingTraffic foretold{o, stream, 2 * kDim, 0};  // numbers of 8 B are two of 4
  for (std::int64_t step = 0; step < o.steps; ++step) {
    run.step(step);
    const StepTraffic expected = foretold.step(), &t = ran.traffic[static_cast<std::size_t>(step)];
    REQUIRE(t.up == expected.up);
    REQUIRE(t.down == expected.down);
    REQUIRE((t.rows == expected.rows && t.misses == expected.misses));
    REQUIRE((t.sent == expected.sent && t.pushed == expected.pushed));
  }
  CHECK(ran.rows == run.all());
}

TEST_CASE("caches execute with any policy as foretold", "[embedding]") {
  CachedTrainingOptions o = small(3, GENERATE(0.03, 0.2));
  o.policy = GENERATE(CachePolicy::Lfu, CachePolicy::LightLfu);
  o.steps = 60;
  const IdStream stream{kFields, 6};
  const ExecutedCaches ran = execute_caches(o, stream, 2, initial_rows(stream, 2), descent_of(stream, o));
  EmbeddingTraffic foretold{o, stream, 4, 0};
  for (const StepTraffic& t : ran.traffic) {
    const StepTraffic expected = foretold.step();
    REQUIRE((t.up == expected.up && t.down == expected.down && t.misses == expected.misses));
  }
}

TEST_CASE("without staleness caches train as one device does with the whole batch", "[embedding]") {
  CachedTrainingOptions o = small(0, GENERATE(0.05, 1.0));
  o.steps = 50;
  const IdStream stream{kFields, 6};
  constexpr std::int64_t kDim = 3;
  const ExecutedCaches ran = execute_caches(o, stream, kDim, initial_rows(stream, kDim), descent_of(stream, o));
  Numbers rows = initial_rows(stream, kDim);
  std::vector<std::int64_t> all(static_cast<std::size_t>(stream.rows()));
  std::iota(all.begin(), all.end(), 0);
  const std::int64_t samples = o.workers * o.batch;
  for (std::int64_t step = 0; step < o.steps; ++step) {
    Numbers changes(rows.size());
    descend(stream, step * samples, samples, samples, all, rows, changes);
    add(rows, changes);
  }
  double apart = 0, moved = 0;
  const Numbers start = initial_rows(stream, kDim);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    apart = std::max(apart, std::abs(rows[i] - ran.rows[i]));
    moved = std::max(moved, std::abs(rows[i] - start[i]));
  }
  CHECK(apart < 1e-12);
  CHECK(moved > 0.1);
}
