// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "sim/model/load.hpp"
#include "sim/model/print.hpp"

using namespace orrery;

TEST_CASE("a model is shown with its counts and one line for equal parameters", "[model]") {
  const Model m = model_from_config(
      parse_json(
          R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 10, "n_positions": 4})",
          "c.json"),
      "small");
  // tables 10·8 + 4·8 = 112; a block 12·64 + 13·8 = 872, two of them 1,744; the last norm 16
  const std::string text = show_model(m);
  CHECK(text.find("small (gpt2), 2 decoder blocks\n1,872 parameters (1.87 k), ") == 0);
  CHECK(text.find("transformer.h.*.attn.c_attn.weight") != std::string::npos);
  CHECK(text.find("transformer.h.0") == std::string::npos);
  CHECK(list_parameters(m).find("transformer.h.1.mlp.c_fc.weight ") != std::string::npos);
  CHECK(list_parameters(m).find("  8×32  ") != std::string::npos);
}

TEST_CASE("counts have three significant digits", "[model]") {
  CHECK(count_text(124'439'808) == "124 M");
  CHECK(count_text(6'738'415'616) == "6.74 B");
  CHECK(count_text(1'008'038'758'400) == "1.01 T");
  CHECK(count_text(999'999) == "1.00 M");
  CHECK(count_text(15'706'484'224) == "15.7 B");
  CHECK(count_text(999) == "999");
}
