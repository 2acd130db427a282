// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/dtype.hpp"
#include "sim/model/model.hpp"

namespace orrery {

/// One tensor as a safetensors file describes it.
struct StoredTensor {
  std::string name;
  std::string dtype;  // as it stands in the file: "BF16"
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes from the start of the data
  std::size_t shard = 0;             // index of the file it lies in

  std::int64_t elements() const;
};

/// The description at the head of a safetensors file, tensors in the order of their data.
struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::uint64_t data_start = 0;  // bytes from the start of the file

  std::int64_t parameter_count() const;
};

/// Reads the header at the start of `bytes`, of a file of `file_size` bytes. Throws UserError unless it is at most 100
/// MB of strict JSON that describes tensors whose sizes fit their types and shapes and which cover the data without gap
/// or overlap.
SafetensorsHeader parse_safetensors_header(std::string_view bytes, std::uint64_t file_size, std::string_view file_name);

/// Memory of an element in a file; nothing for a type that safetensors does not know.
std::optional<int> stored_bits(std::string_view dtype);
/// The name that safetensors gives to a type; throws UserError for a type that it has not.
std::string_view stored_name(DType type);

class MappedFile;

/// The weights of a checkpoint: one safetensors file, or the shards of a `model.safetensors.index.json`. Files are
/// mapped into memory, so only what is copied is read.
class Weights {
 public:
  /// Opens a `.safetensors` file, an `.index.json`, or a folder that holds either. Throws UserError.
  explicit Weights(const std::string& path);
  ~Weights();
  Weights(Weights&&) noexcept;
  Weights& operator=(Weights&&) noexcept;

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Null when there is no tensor of this name.
  const StoredTensor* find(std::string_view name) const;

  /// The bytes of a tensor as they lie in the file.
  std::span<const std::byte> bytes(const StoredTensor& tensor) const;
  /// All elements as float or double, from F64, F32, F16 or BF16. `out` has `elements()` places.
  void copy(const StoredTensor& tensor, std::span<float> out) const;
  void copy(const StoredTensor& tensor, std::span<double> out) const;

 private:
  void add_file(const std::string& path);
  void add_index(const std::string& path);
  void sort_names();

  std::vector<MappedFile> files_;
  std::vector<std::uint64_t> data_starts_;  // per file
  std::vector<StoredTensor> tensors_;
  std::vector<std::size_t> by_name_;  // indices of tensors_, sorted by name
};

/// A tensor to be written; `data` has as many bytes as shape and type ask for.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

/// Writes one safetensors file through a temporary one, so that no reader and no interrupt sees half of it. Throws
/// DeviceError.
void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                       const std::vector<std::pair<std::string, std::string>>& metadata = {});

/// Where the parameters of a model lie in a checkpoint, and what does not fit.
struct WeightCheck {
  std::vector<const StoredTensor*> found;  // by parameter; null when missing
  std::vector<std::string> missing;        // parameters that no tensor has
  std::vector<std::string> extra;          // tensors that are no parameter
  std::vector<std::string> misshapen;      // "lm_head.weight: [10, 4] instead of [12, 4]"
  std::vector<std::string> ignored;        // tensors that are known to be no weights: masks, tied copies, other heads

  bool fits() const { return missing.empty() && extra.empty() && misshapen.empty(); }
};

/// Compares a checkpoint with a model. Names may lack or have the prefix of the base model ("transformer.", "bert.",
/// "model."), a tied head may be there as a copy, mask and position buffers are ignored.
WeightCheck check_against(const Model& model, const Weights& weights);

}  // namespace orrery
