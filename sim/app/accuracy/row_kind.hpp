// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "calibrate/published/skip.hpp"
#include "sim/base/csv.hpp"

namespace orrery {

class Wiring;

/// One measured number of a row and what is predicted for it, in base units (seconds, bytes, tokens per second).
struct Observation {
  std::string quantity = "time";  // numbers of one quantity are judged together; the first of a row is its main one
  double measured = 0;
  double predicted = 0, low = 0, high = 0;  // low … high: the 90 % interval

  // What statistics group by; equal `key`s with equal quantity are repeats of one measurement. Empty: never a repeat.
  std::string gpu, op, source, key;
  // Of the software, and by which name of its deviations the row tells of them; empty: kernels alone. What the source
  // says that measurements scatter by: a standard deviation of ln(measured).
  std::string profile, forecast;
  double scatter = 0;
  double unit = 1;    // what deviations of this forecast are multiples of: a standard deviation of ln(measured)
  std::string sweep;  // rows that differ in one choice: the rank correlation is taken within each; empty: none
  double size = 0;    // of the work, for decades and for the largest fifth
};

/// A yes or no that a row tells, such as whether a layout does not fit into memory: predicted where the `amount` is
/// more than the `limit`.
struct YesNo {
  std::string name;
  bool measured = false;
  double amount = 0, limit = 0;

  bool predicted() const { return amount > limit; }
};

struct RowPrediction {
  std::vector<Observation> observations;
  std::vector<YesNo> outcomes;
};
using RowResult = std::variant<RowPrediction, Skip>;

/// Predicts the rows of one kind of table. Rows are predicted on several threads at once: `predict` guards what it
/// remembers.
class RowPredictor {
 public:
  virtual ~RowPredictor() = default;
  virtual RowResult predict(const CsvRow& row) const = 0;
  /// Rows of one name use something that serves one thread at a time: one predicts them all. Empty: any may.
  virtual std::string shared_by(const CsvRow& /*row*/) const { return {}; }
};

/// A kind of table, recognised by the columns that tell it (`lacking_columns`); of several kinds that all fit, the one
/// with the most. Its rows read more columns, which a table may lack.
struct RowKind {
  std::string_view name, summary;
  std::string_view columns;
  std::function<std::unique_ptr<RowPredictor>(const Wiring& wiring)> make;
};

/// All kinds: those of kernels, and one line each in row_kinds.cpp.
std::vector<RowKind> row_kinds();

/// The kind of a table; nothing where it is none of them.
std::optional<RowKind> find_kind(const CsvTable& table);
/// What the nearest kind of table has that this one lacks, for people: "nearest is 'gemm', which also has …".
std::string nearest_kind(const CsvTable& table);
/// The kind of a table. Throws UserError that names the kinds and what the nearest of them lacks.
RowKind kind_of(const CsvTable& table);

}  // namespace orrery
