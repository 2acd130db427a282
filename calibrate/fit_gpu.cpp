// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit_gpu.hpp"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "calibrate/log_spread.hpp"
#include "calibrate/published/split.hpp"
#include "calibrate/statistics.hpp"

namespace orrery {
namespace {

constexpr std::size_t kLeastPoints = 25;
constexpr double kRobust = 0.08;       // |ln| from which a residual counts less
constexpr double kCovered = 0.885;     // of the residuals that the interval shall cover
constexpr std::size_t kRowLength = 8;  // numbers in one row of the file
constexpr double kSmaller = 0.8;       // of the points: whose law is judged by the others
constexpr std::size_t kFewestLarge = 8;

/// One measurement as a fit sees it: ops of the law in question, and seconds of all else.
struct LawPoint {
  std::vector<const Work*> works;
  std::vector<GpuFacts> facts;
  double others = 0, seconds = 0, size = 0;
  RowSplit split = RowSplit::Fit;
};

using Coefficients = Eigen::VectorXd;

class LawFitter {
 public:
  LawFitter(const GpuLawForm& form, std::vector<LawPoint> points) : form_{form}, points_{std::move(points)} {
    for (const LawPoint& p : points_)
      if (p.split == RowSplit::Fit) fitted_.push_back(&p);
  }

  GpuLaw fit() {
    fit_form();
    fit_correction();
    fit_spread();
    GpuLaw law;
    for (std::size_t i = 0; i < form_.parameters.size(); ++i)
      law.parameters[std::string{form_.parameters[i].name}] = rounded_significant(std::exp(log_[Eigen::Index(i)]));
    law.correction = rows_of(correction_, 1e4);
    law.spread = rows_of(spread_, 1e3);
    law.points = std::int64_t(fitted_.size());
    set_range(law);
    set_errors(law);
    return law;
  }

 private:
  static double rounded_significant(double v) {
    const double scale = std::pow(10, 5 - std::floor(std::log10(std::max(1e-300, std::abs(v)))));
    return std::round(v * scale) / scale;
  }
  static std::vector<std::vector<double>> rows_of(const Coefficients& c, double scale) {
    std::vector<std::vector<double>> rows;
    for (Eigen::Index i = 0; i < c.size(); ++i) {
      if (std::size_t(i) % kRowLength == 0) rows.emplace_back();
      rows.back().push_back(std::round(c[i] * scale) / scale);
    }
    return rows;
  }

  double predict(const Coefficients& log, const LawPoint& p) const {
    const Coefficients x = log.array().exp();
    double seconds = p.others;
    for (std::size_t i = 0; i < p.works.size(); ++i)
      seconds += form_.time(x.data(), *p.works[i], {}, p.facts[i]).seconds;
    return seconds;
  }

  /// ln(predicted / measured) of all fitted points.
  Coefficients residuals(const Coefficients& log) const {
    Coefficients r(Eigen::Index(fitted_.size()));
    for (std::size_t i = 0; i < fitted_.size(); ++i)
      r[Eigen::Index(i)] = std::log(predict(log, *fitted_[i]) / fitted_[i]->seconds);
    return r;
  }

  /// Soft L1: 2·(√(1 + z²) − 1) with z = r / kRobust.
  double cost(const Coefficients& r, const Coefficients& log) const {
    double sum = 0;
    for (const double v : r) sum += 2 * (std::sqrt(1 + v * v / (kRobust * kRobust)) - 1);
    for (std::size_t i = 0; i < form_.parameters.size(); ++i) {
      const double d =
          form_.parameters[i].stiffness * (log[Eigen::Index(i)] - std::log(form_.parameters[i].start)) / kRobust;
      sum += d * d;
    }
    return sum;
  }

  Eigen::MatrixXd jacobian(const Coefficients& log, const Coefficients& r) const {
    constexpr double kStep = 1e-4;
    Eigen::MatrixXd j(r.size(), log.size());
    for (Eigen::Index c = 0; c < log.size(); ++c) {
      Coefficients moved = log;
      moved[c] += kStep;
      j.col(c) = (residuals(moved) - r) / kStep;
    }
    return j;
  }

  /// One step of Levenberg and Marquardt; false when none makes it better.
  bool improve(Coefficients& r, double& damping) {
    const Eigen::MatrixXd j = jacobian(log_, r);
    const Eigen::VectorXd w = (1 + (r.array() / kRobust).square()).rsqrt();
    Eigen::MatrixXd a = j.transpose() * w.asDiagonal() * j;
    Eigen::VectorXd b = -(j.transpose() * (w.array() * r.array()).matrix());
    for (std::size_t i = 0; i < form_.parameters.size(); ++i) {
      const double s = form_.parameters[i].stiffness * form_.parameters[i].stiffness;
      a(Eigen::Index(i), Eigen::Index(i)) += s;
      b[Eigen::Index(i)] -= s * (log_[Eigen::Index(i)] - std::log(form_.parameters[i].start));
    }
    const double before = cost(r, log_);
    for (int attempt = 0; attempt < 8; ++attempt, damping *= 4) {
      Eigen::MatrixXd damped = a;
      damped.diagonal() *= 1 + damping;
      damped.diagonal().array() += 1e-9;
      const Coefficients moved = log_ + damped.ldlt().solve(b).cwiseMax(-1).cwiseMin(1);
      const Coefficients next = residuals(moved);
      if (cost(next, moved) >= before * (1 - 1e-6)) continue;
      log_ = moved;
      r = next;
      damping = std::max(1e-4, damping / 8);
      return true;
    }
    return false;
  }

  void fit_form() {
    constexpr int kMostSteps = 60;
    log_.resize(Eigen::Index(form_.parameters.size()));
    for (std::size_t i = 0; i < form_.parameters.size(); ++i)
      log_[Eigen::Index(i)] = std::log(form_.parameters[i].start);
    Coefficients r = residuals(log_);
    double damping = 1e-2;
    for (int i = 0; i < kMostSteps && improve(r, damping);) ++i;
  }

  /// The basis of the correction, by the part of the time that each op of a point takes.
  Eigen::VectorXd basis(const LawPoint& p) const {
    const Coefficients x = log_.array().exp();
    Eigen::VectorXd row = Eigen::VectorXd::Zero(Eigen::Index(basis_size(form_)));
    const double all = predict(log_, p);
    for (std::size_t i = 0; i < p.works.size(); ++i) {
      const LawTime t = form_.time(x.data(), *p.works[i], {}, p.facts[i]);
      basis_row(form_, t, t.seconds / all, {row.data(), std::size_t(row.size())});
    }
    return row;
  }

  void fit_correction() {
    constexpr int kRounds = 4;
    constexpr double kLeast = 0.03;             // residuals below do not gain weight
    constexpr double kRidge = 1.0, kFew = 500;  // in points: how much a term of the correction must be borne out
    const double ridge = kRidge * std::clamp(double(fitted_.size()) / kFew, 0.1, 1.0);
    Eigen::MatrixXd x(Eigen::Index(fitted_.size()), Eigen::Index(basis_size(form_)));
    for (std::size_t i = 0; i < fitted_.size(); ++i) x.row(Eigen::Index(i)) = basis(*fitted_[i]);
    const Coefficients y = -residuals(log_);
    Eigen::VectorXd w = Eigen::VectorXd::Ones(x.rows());
    Eigen::LDLT<Eigen::MatrixXd> solved;
    for (int i = 0; i < kRounds; ++i) {
      Eigen::MatrixXd a = x.transpose() * w.asDiagonal() * x;
      a.diagonal().array() += ridge;
      solved.compute(a);
      correction_ = solved.solve(x.transpose() * (w.array() * y.array()).matrix());
      if (i + 1 < kRounds) w = kLeast / (y - x * correction_).array().abs().max(kLeast);
    }
    const Eigen::MatrixXd h = solved.solve(x.transpose());  // leverage: how much a point draws the fit to itself
    left_out_.resize(x.rows());
    for (Eigen::Index i = 0; i < x.rows(); ++i) {
      const double leverage = std::min(0.9, w[i] * x.row(i).dot(h.col(i)));
      left_out_[i] = (y[i] - x.row(i).dot(correction_)) / (1 - leverage);
    }
  }

  void fit_spread() {
    std::vector<std::vector<double>> features;
    for (Eigen::Index i = 0; i < left_out_.size(); ++i) {
      // The first is the part of the time that the law explains: its errors are larger than those of all.
      const Eigen::VectorXd row = basis(*fitted_[std::size_t(i)]);
      features.emplace_back(row.begin(), row.end());
      for (double& f : features.back()) f /= row[0];
      left_out_[i] /= row[0];
    }
    const std::vector<double> spread = fit_log_spread(features, {left_out_.begin(), left_out_.end()}, kCovered);
    spread_ = Eigen::Map<const Eigen::VectorXd>(spread.data(), Eigen::Index(spread.size()));
  }

  void set_range(GpuLaw& law) const {
    const Coefficients x = log_.array().exp();
    for (std::size_t a = 0; a < form_.axes.size(); ++a) {
      double least = HUGE_VAL, most = -HUGE_VAL;
      for (const LawPoint* p : fitted_)
        for (std::size_t i = 0; i < p->works.size(); ++i) {
          const double v = form_.time(x.data(), *p->works[i], {}, p->facts[i]).axes[a];
          least = std::min(least, v), most = std::max(most, v);
        }
      law.range[std::string{form_.axes[a].name}] = {std::round(least * 100) / 100, std::round(most * 100) / 100};
    }
    std::vector<double> seconds;
    for (const LawPoint* p : fitted_)
      for (std::size_t i = 0; i < p->works.size(); ++i)
        seconds.push_back(std::log2(form_.time(x.data(), *p->works[i], {}, p->facts[i]).seconds));
    constexpr double kTail = 0.1;
    law.range["seconds"] = {std::round(quantile(seconds, kTail) * 100) / 100,
                            std::round(quantile(seconds, 1 - kTail) * 100) / 100};
  }

  void set_errors(GpuLaw& law) const {
    const FittedLaw fitted{form_, law};
    std::map<RowSplit, std::vector<double>> errors;
    for (const LawPoint& p : points_) {
      double seconds = p.others;
      for (std::size_t i = 0; i < p.works.size(); ++i) seconds += fitted(*p.works[i], {}, p.facts[i]).seconds;
      errors[p.split].push_back(std::abs(seconds / p.seconds - 1));
    }
    const auto middle = [&](RowSplit s) { return errors[s].empty() ? 0 : std::round(1e4 * median(errors[s])) / 1e4; };
    const auto tail = [&](RowSplit s) {
      return errors[s].empty() ? 0 : std::round(1e4 * quantile(errors[s], 0.9)) / 1e4;
    };
    law.median_error = middle(RowSplit::Fit), law.p90_error = tail(RowSplit::Fit);
    law.random_median_error = middle(RowSplit::Random), law.random_p90_error = tail(RowSplit::Random);
    law.largest_median_error = middle(RowSplit::Largest), law.largest_p90_error = tail(RowSplit::Largest);
  }

  const GpuLawForm& form_;
  std::vector<LawPoint> points_;
  std::vector<const LawPoint*> fitted_;
  Coefficients log_, correction_, left_out_, spread_;
};

/// The least growth with which intervals of a law of the smaller points hold their share of the largest fifth; that of
/// laws that nobody fitted where these are too few.
double growth_of(const GpuLawForm& form, std::vector<LawPoint> points) {
  std::vector<double> sizes, needed;
  for (const LawPoint& p : points)
    if (p.split == RowSplit::Fit) sizes.push_back(p.size);
  const double edge = quantile(sizes, kSmaller);
  if (double(sizes.size()) * kSmaller < double(kLeastPoints)) return GpuLaw{}.growth;
  std::vector<LawPoint> large;
  for (LawPoint& p : points)
    if (p.split == RowSplit::Fit && p.size > edge) large.push_back(p), p.split = RowSplit::Largest;
  GpuLaw law = LawFitter{form, std::move(points)}.fit();
  law.growth = 0;
  const FittedLaw small{form, law};
  for (const LawPoint& p : large) {
    double seconds = p.others, doubt = 0, longest = 0;
    for (std::size_t i = 0; i < p.works.size(); ++i) {
      const FittedLaw::Answer a = small(*p.works[i], {}, p.facts[i]);
      seconds += a.seconds, doubt += a.seconds * a.deviation, longest = std::max(longest, a.form.seconds);
    }
    const double beyond = std::log2(longest) - law.range.at("seconds")[1];
    const double error = std::log(p.seconds / seconds) / kNinetyPercent;
    const double rest = error * error - doubt * doubt / (seconds * seconds);
    if (beyond > 0) needed.push_back(std::sqrt(std::max(0.0, rest)) / std::max(1.0, beyond));
  }
  if (needed.size() < kFewestLarge) return GpuLaw{}.growth;
  return std::round(1e4 * quantile(std::move(needed), kCovered)) / 1e4;
}

std::vector<RowSplit> splits_of(const std::vector<KernelCase>& cases) {
  std::vector<std::string> groups;
  for (const KernelCase& c : cases) groups.push_back(c.gpu + " " + c.op);
  std::vector<SplitItem> items;
  for (std::size_t i = 0; i < cases.size(); ++i) items.push_back({cases[i].row_id, groups[i], cases[i].size});
  return split_rows(items);
}

LawPoint point_of(const KernelCase& c, LawSlot slot, RowSplit split, const GpuModel& model, double sms) {
  LawPoint p;
  Bindings bindings;
  bindings.working_set =
      c.in_plan ? 1 : 0;  // bytes; that there are any tells the model that the clock is that of plans
  p.seconds = c.seconds;
  p.size = c.size;
  p.split = split;
  for (const Work& w : c.works) {
    if (law_slot(w, {}, sms) != slot) {
      p.others += model.cost(w, {}, {}).duration.base();
      continue;
    }
    p.works.push_back(&w);
    p.facts.push_back(model.facts(w, bindings, {}));
  }
  return p;
}

/// Slots in the order in which they are fitted: from the last, since ops that are part of others' points come last.
std::vector<LawSlot> fit_order(const std::set<LawSlot>& slots) { return {slots.rbegin(), slots.rend()}; }

}  // namespace

std::vector<std::string> fit_gpu(GpuParameters& parameters, const std::vector<KernelCase>& all,
                                 const std::vector<BorrowedLaws>& borrowed, HoldOut hold_out) {
  const std::vector<KernelCase> cases = averaged(all);
  const std::vector<RowSplit> splits =
      hold_out == HoldOut::Fifths ? splits_of(cases) : std::vector<RowSplit>(cases.size(), RowSplit::Fit);
  const double sms = double(parameters.sm_count);
  std::set<LawSlot> slots;
  for (const KernelCase& c : cases) slots.insert(law_slot(c.works.front(), {}, sms));
  std::vector<std::string> fitted;
  for (const LawSlot slot : fit_order(slots)) {
    const GpuModel model{"", parameters, borrowed};
    std::vector<LawPoint> points;
    std::set<std::string> harnesses;
    bool eager_loop = true;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (law_slot(cases[i].works.front(), {}, sms) != slot) continue;
      points.push_back(point_of(cases[i], slot, splits[i], model, sms));
      harnesses.insert(cases[i].harness);
      eager_loop = eager_loop && cases[i].eager_loop;
    }
    const auto seen =
        std::count_if(points.begin(), points.end(), [](const LawPoint& p) { return p.split == RowSplit::Fit; });
    if (std::size_t(seen) < kLeastPoints) continue;
    const double growth = growth_of(law_form(slot), points);
    GpuLaw law = LawFitter{law_form(slot), std::move(points)}.fit();
    law.growth = growth;
    for (const std::string& h : harnesses) law.harness += (law.harness.empty() ? "" : ", ") + h;
    law.eager_loop = eager_loop;
    GpuLaw& own = parameters.laws[law_name(slot)];
    law.loop_clock = own.loop_clock;  // no fit tells it from the rates of tiles
    own = std::move(law);
    fitted.push_back(law_name(slot));
  }
  return fitted;
}

}  // namespace orrery
