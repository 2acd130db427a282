// SPDX-License-Identifier: Apache-2.0
// Fits of software profiles: which rows they see, and how they search.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/app/accuracy/profile_fit.hpp"

using namespace orrery;

TEST_CASE("a profile sees at most 30 % of the rows and nothing of the models held out", "[published]") {
  std::vector<RowOfModel> cases;
  for (int i = 0; i < 200; ++i) cases.push_back({"row-" + std::to_string(i), "model-" + std::to_string(i % 7)});
  const ProfileSplit split = split_for_profile(cases);
  CHECK(std::count(split.fitted.begin(), split.fitted.end(), true) <= 60);
  CHECK(std::count(split.fitted.begin(), split.fitted.end(), true) > 30);
  REQUIRE_FALSE(split.held_out.empty());
  for (std::size_t i = 0; i < cases.size(); ++i)
    if (std::find(split.held_out.begin(), split.held_out.end(), cases[i].model) != split.held_out.end())
      CHECK_FALSE(split.fitted[i]);
}

TEST_CASE("a profile's search trades one number for another where neither alone helps", "[published]") {
  SoftwareProfile start;
  start.products = start.streams = 0.8;
  const std::vector<ProfileNumber> numbers{step_numbers()[0], step_numbers()[2]};
  ProfileCases cases{.rows = {}, .numbers = &numbers, .errors = {}};
  for (int i = 0; i < 40; ++i) cases.rows.push_back({"row-" + std::to_string(i), "model-" + std::to_string(i % 4)});
  cases.errors = [](const std::vector<std::size_t>& rows, const SoftwareProfile& p) {
    std::vector<double> errors;
    for (const std::size_t i : rows)
      errors.push_back(i % 2 == 0 ? 10 * std::log(p.products * p.streams / 0.64) : std::log(p.products / 0.5));
    return errors;
  };
  const ProfileFit fit = fit_profile(start, cases);
  CHECK(fit.profile.products == Approx(0.5).epsilon(0.05));
  CHECK(fit.profile.products * fit.profile.streams == Approx(0.64).epsilon(0.01));
}
