// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "calibrate/published/skip.hpp"
#include "sim/base/csv.hpp"
#include "sim/plan/work.hpp"

namespace orrery {

/// One published measurement of a kernel: the work as plans say it, several ops where the kernel fuses or the time
/// includes them, and how long it took.
struct KernelCase {
  std::string row_id;       // made of file and line where the table has none
  std::string gpu;          // as the table says
  std::string device;       // whose parameters predict it
  std::string op;           // "gemm bf16"; what statistics group by
  std::string harness;      // program that measured
  bool eager_loop = false;  // see GpuLaw
  std::string source;
  std::string key;          // equal for repeats of one measurement
  std::vector<Work> works;  // one after another
  double size = 0;          // of the work: FLOP, or bytes where there is little arithmetic
  double seconds = 0;       // measured
  bool in_plan = false;     // among other ops of a step, not by itself
};
using KernelRow = std::variant<KernelCase, Skip>;

/// A kind of table of kernels, recognised by its columns.
struct KernelTable {
  std::string_view name, summary;
  std::string_view columns;  // that tell it, as `lacking_columns` reads them
  KernelRow (*read)(const CsvRow& row);
};

/// One line each in kernels.cpp.
std::span<const KernelTable> kernel_tables();

KernelRow read_gemm_row(const CsvRow& row);
KernelRow read_attention_row(const CsvRow& row);
KernelRow read_moe_row(const CsvRow& row);
KernelRow read_fp32_row(const CsvRow& row);

/// What of these columns, separated by spaces, a table lacks: "m" asks for a column, "seq/gbs" for either of two,
/// "!batch" that there is none. Only columns that tell one kind of table from the others are asked for: a table leaves
/// out those that are empty in all of its rows, and they are read as empty cells.
std::vector<std::string> lacking_columns(const CsvTable& table, std::string_view columns);
/// The row's own id, or file and line.
std::string id_of(const CsvRow& row);
/// Reads what all tables of kernels share: id, GPU, harness, source, and the key of `inputs`, the columns (separated by
/// spaces) that say what was measured. A row of an unknown device, or whose time (`column`, times `unit` seconds) is no
/// positive number, is skipped.
KernelRow begin_kernel_row(const CsvRow& row, std::string_view inputs, std::string_view column, double unit);

/// Repeats as one: the first of them with the mean time.
std::vector<KernelCase> averaged(const std::vector<KernelCase>& cases);

/// Sizes that a row must have. Remembers the first that it has not.
class Sizes {
 public:
  explicit Sizes(const CsvRow& row) : row_{row} {}
  /// A positive integer; 1 and a problem when the cell is none.
  std::int64_t operator[](std::string_view column);
  /// The first column that held no positive integer; empty when all did.
  const std::string& missing() const { return missing_; }
  Skip skip() const;

 private:
  const CsvRow& row_;
  std::string missing_;
};

/// "bfloat16", "bf16", "fp8", "nvfp4" …; nothing when no data type is called so.
std::optional<DType> dtype_of(std::string_view name);

}  // namespace orrery
