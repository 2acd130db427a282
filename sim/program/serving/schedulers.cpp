// SPDX-License-Identifier: Apache-2.0
// The table of schedulers.
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/program/serving/scheduler.hpp"

namespace orrery {
namespace {

constexpr SchedulerRules kSchedulers[] = {
    {.name = "static",
     .summary = "full batches; all of a batch compute until the longest answer is there",
     .continuous = false,
     .waits_for_full = true,
     .together = true,
     .chunked = false,
     .reserves = true},
    {.name = "fastertransformer",
     .summary = "whole batches of who is waiting; the next one starts when all have been answered",
     .continuous = false,
     .chunked = false,
     .reserves = true},
    {.name = "orca",
     .summary = "requests join at every step; room for the whole answer is reserved",
     .chunked = false,
     .reserves = true},
    {.name = "vllm_v0",
     .summary = "blocks on demand; steps of whole prompts go before steps that decode",
     .mixed = false,
     .chunked = false},
    {.name = "sglang",
     .summary = "by expected lengths; steps of prompts, cut where a step is full, go before steps that decode",
     .mixed = false,
     .expects = true},
    {.name = "sglang_mixed",
     .summary = "the same, prompts sharing steps with sequences that decode (`enable-mixed-chunk`)",
     .expects = true},
    {.name = "tensorrt_llm",
     .summary = "requests join at every step with whole prompts; room for the whole answer is reserved",
     .chunked = false,
     .decodes_first = true,
     .reserves = true},
    {.name = "tensorrt_llm_chunked",
     .summary = "the same, prompts being cut where a step is full",
     .decodes_first = true,
     .reserves = true},
    {.name = "vllm_v1", .summary = "blocks on demand; one budget of tokens a step for prompts and decoding, in order"},
    {.name = "vllm_v1_async", .summary = "as vllm_v1, each step decided while the one before it runs", .ahead = true},
    {.name = "sarathi",
     .summary = "blocks on demand; who decodes goes first, prompts fill the step up in chunks",
     .decodes_first = true},
};

}  // namespace

std::span<const SchedulerRules> schedulers() { return kSchedulers; }

const SchedulerRules& find_scheduler(std::string_view name) {
  std::vector<std::string> names;
  for (const SchedulerRules& s : kSchedulers) {
    if (s.name == name) return s;
    names.emplace_back(s.name);
  }
  throw unknown_name("scheduler", name, names);
}

}  // namespace orrery
