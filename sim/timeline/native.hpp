// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "sim/timeline/columns.hpp"
#include "sim/timeline/digest.hpp"

namespace orrery {

/// Orrery's own format: an SQLite database. Small tables are rows (`meta`, `notes`, `plans`, `names`, `works` …); what
/// is long (ops, spans, memory samples) lies in `columns` as blobs of differences, in chunks of kNativeChunk rows.
/// Nothing is lost: reading gives the same trace to the picosecond.
constexpr std::int64_t kNativeVersion = 2;
constexpr std::size_t kNativeChunk = 65'536;

/// The bytes of the file.
std::string write_native(const Trace& trace, const std::string& file);

/// Throws UserError when the bytes are no trace, damaged, or of a newer version.
Trace read_native(std::string_view bytes, const std::string& file);

// The columns of each long table, in the order of their members.

/// An end of an instance and its plan; a peak with the number of its owners; an owner.
struct InstanceRow {
  std::int64_t end_ps = 0;
  std::uint32_t plan = 0;
};
struct PeakRow {
  RankId rank;
  Tier tier = Tier::Device;
  std::int64_t bytes = 0, arena_bytes = 0;
  OpId op;
  std::uint32_t instance = 0, owners = 0;
};
struct OwnerRow {
  TensorId tensor;
  std::int64_t bytes = 0;
};
struct DepRow {
  OpId op;
};

inline constexpr Field<Op> kOpFields[] = {field<&Op::name>("name"),           field<&Op::work>("work"),
                                          field<&Op::first_dep>("first_dep"), field<&Op::num_deps>("num_deps"),
                                          field<&Op::stream>("stream"),       field<&Op::phase>("phase"),
                                          field<&Op::layer>("layer"),         field<&Op::microbatch>("microbatch")};
inline constexpr Field<DepRow> kDepFields[] = {field<&DepRow::op>("op")};
inline constexpr Field<TensorDigest> kTensorFields[] = {
    field<&TensorDigest::name>("name"), field<&TensorDigest::role>("role"), field<&TensorDigest::tier>("tier"),
    field<&TensorDigest::bytes>("bytes")};
inline constexpr Field<StorageUse> kStorageFields[] = {field<&StorageUse::op>("op"), field<&StorageUse::owner>("owner"),
                                                       field<&StorageUse::takes>("takes")};
inline constexpr Field<Span> kSpanFields[] = {
    field<&Span::start_ps>("start_ps"), field<&Span::end_ps>("end_ps"),     field<&Span::op>("op"),
    field<&Span::rank>("rank"),         field<&Span::instance>("instance"), field<&Span::part>("part")};
inline constexpr Field<MemorySample> kMemoryFields[] = {
    field<&MemorySample::at_ps>("at_ps"), field<&MemorySample::rank>("rank"), field<&MemorySample::tier>("tier"),
    field<&MemorySample::bytes>("bytes")};
inline constexpr Field<InstanceRow> kInstanceFields[] = {field<&InstanceRow::end_ps>("end_ps"),
                                                         field<&InstanceRow::plan>("plan")};
inline constexpr Field<Standing> kStandingFields[] = {field<&Standing::rank>("rank"), field<&Standing::ranks>("ranks")};
inline constexpr Field<PeakRow> kPeakFields[] = {
    field<&PeakRow::rank>("rank"),    field<&PeakRow::tier>("tier"),
    field<&PeakRow::bytes>("bytes"),  field<&PeakRow::arena_bytes>("arena_bytes"),
    field<&PeakRow::op>("op"),        field<&PeakRow::instance>("instance"),
    field<&PeakRow::owners>("owners")};
inline constexpr Field<OwnerRow> kOwnerFields[] = {field<&OwnerRow::tensor>("tensor"),
                                                   field<&OwnerRow::bytes>("bytes")};

}  // namespace orrery
