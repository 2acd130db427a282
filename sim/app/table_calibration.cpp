// SPDX-License-Identifier: Apache-2.0
#include "sim/app/table_calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "calibrate/fit_gpu.hpp"
#include "calibrate/this_machine.hpp"
#include "hw_models/parameters.hpp"
#include "sim/app/accuracy/left_out.hpp"
#include "sim/app/run_directory.hpp"
#include "sim/app/wiring.hpp"

namespace orrery {
namespace {

const KernelTable& kernel_table_of(const CsvTable& table) {
  std::vector<std::string> names;
  for (const KernelTable& k : kernel_tables()) {
    if (lacking_columns(table, k.columns).empty()) return k;
    names.emplace_back(k.name);
  }
  throw UserError{Diagnostic{"laws are fitted to tables of kernels, and this is none",
                             fmt::format("kinds of tables: {}", fmt::join(names, ", ")),
                             table.file(),
                             1,
                             0,
                             {}}};
}

void add_cases(const CsvTable& table, const std::string& device, const GpuParameters& parameters,
               std::vector<KernelCase>& cases) {
  const KernelTable& kind = kernel_table_of(table);
  for (std::size_t i = 0; i < table.num_rows(); ++i) {
    if (left_out(table.row(i))) continue;
    KernelRow row = kind.read(table.row(i));
    auto* c = std::get_if<KernelCase>(&row);
    if (!c || c->device != device) continue;
    const auto* g = std::get_if<Gemm>(&c->works.front());
    if (g && !parameters.peak.contains(std::string{name_of(g->dtype)})) continue;
    cases.push_back(std::move(*c));
  }
}

/// Laws of a device that stand in for those not fitted yet.
std::vector<BorrowedLaws> borrowed_of(const GpuParameters& p, const std::vector<std::string>& folders) {
  std::vector<BorrowedLaws> all;
  for (const std::string& name : p.like) {
    const auto device = find_device(name, folders);
    all.push_back({name, dynamic_cast<const GpuModel&>(*device).parameters().laws});
  }
  return all;
}

}  // namespace

GpuParameters gpu_parameters(const std::string& device, const std::vector<std::string>& folders) {
  const auto found = find_device(device, folders);
  const auto* gpu = dynamic_cast<const GpuModel*>(found.get());
  if (!gpu) throw UserError{fmt::format("device '{}' is no GPU", device), "tables of kernels are of GPUs"};
  return gpu->parameters();
}

static TableCalibration calibrate_from_cases(const std::vector<KernelCase>& cases, const std::string& device,
                                             AppContext& context) {
  const std::vector<std::string> folders = context.wiring.locations().parameter_folders();
  TableCalibration c{gpu_parameters(device, folders), {}, cases.size()};
  context.console.progress("fit", 0.5);
  c.fitted = fit_gpu(c.parameters, cases, borrowed_of(c.parameters, folders));
  context.console.end_progress();
  c.parameters.provenance.status = FitStatus::Fitted;
  c.parameters.provenance.tool = tool_version();
  c.parameters.provenance.date = today();
  return c;
}

TableCalibration calibrate_from_tables(const std::vector<std::string>& tables, const std::string& device,
                                       AppContext& context) {
  const GpuParameters known = gpu_parameters(device, context.wiring.locations().parameter_folders());
  std::vector<KernelCase> cases;
  for (const std::string& path : tables) {
    context.interrupt.check();
    context.console.progress(path, 0);
    add_cases(read_csv(path), device, known, cases);
  }
  TableCalibration c = calibrate_from_cases(cases, device, context);
  if (c.fitted.empty())
    throw UserError{fmt::format("the tables have too few rows of device '{}' to fit a law: {}", device, c.rows)};
  return c;
}

void write_table_calibration(const TableCalibration& c, const std::string& path) {
  Node document = Node::map();
  document.fields.emplace_back("gpu", write_options(c.parameters));
  write_file_atomically(path,
                        "# SPDX-License-Identifier: Apache-2.0\n# Laws fitted by `orrery calibrate --from`; see "
                        "hw_models/gpu_laws.hpp for what they are.\n" +
                            to_yaml(document));
}

}  // namespace orrery
