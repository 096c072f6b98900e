// SPDX-License-Identifier: Apache-2.0
// Ranks share the calibration images and find what one process finds.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/trainers/ranks.h"
#include "tests/trainers/tiny.h"
#include "trainers/run/run.h"

namespace octet {
namespace {

using testing_trainers::run_ranks;
using testing_trainers::tiny_recipe;
using State = std::map<std::string, at::Tensor>;

/// Five batches, the last of them short.
Recipe five_batches(std::optional<CalibrationMethod> method) {
  Recipe recipe = tiny_recipe();
  recipe.calibrate.images = 27;
  recipe.calibrate.batch_size = 6;
  recipe.calibrate.method = method;
  return recipe;
}

State calibrated(const Recipe& recipe, const std::shared_ptr<Ranks>& ranks) {
  const Run run = open_run(recipe, {"nowhere"}, at::kCPU, ranks);
  const Weights weights = starting_weights(run);
  QuantizedModel model = make_quantized(run, weights);
  calibrate(model, run);
  return model.state();
}

TEST(RanksCalibrate, HaveTheBitsOfOneThatSawAllImages) {
  std::vector<std::optional<CalibrationMethod>> methods = {std::nullopt};
  for (const auto& row : kCalibrationMethods) methods.emplace_back(row.value);
  for (const std::optional<CalibrationMethod>& method : methods) {
    const std::string word(name_or_auto(kCalibrationMethods, method));
    const Recipe recipe = five_batches(method);
    const State alone = calibrated(recipe, nullptr);
    ASSERT_TRUE(alone.contains("edges.scale"));
    for (const int size : {2, 3, 6}) {  // of six one has no image
      std::vector<State> states(static_cast<size_t>(size));
      EXPECT_EQ(run_ranks(size,
                          [&](Ranks& ranks) {
                            const std::shared_ptr<Ranks> mine(&ranks, [](Ranks*) {});
                            states[static_cast<size_t>(ranks.rank())] = calibrated(recipe, mine);
                          }),
                std::vector<std::string>(static_cast<size_t>(size)));
      for (const State& state : states)
        for (const auto& [name, tensor] : alone)
          EXPECT_TRUE(tensor.equal(state.at(name))) << word << ", " << size << " ranks: " << name;
    }
  }
}

}  // namespace
}  // namespace octet
