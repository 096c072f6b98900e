// SPDX-License-Identifier: Apache-2.0
// octet quantize: which work its ways share, and what it says of the choice of ranges.
#include "trainers/run/quantize.h"
#include "trainers/run/advice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/base/progress.h"
#include "src/base/random.h"
#include "src/net/checkpoint.h"
#include "src/net/zoo.h"
#include "tests/trainers/tiny.h"
#include "tools/octet/quantize.h"

namespace octet {
namespace {

using testing_trainers::Folder;

size_t times(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// A request of a network of the zoo with random weights, and of ready inputs.
QuantizeRequest random_network(const std::string& folder) {
  const ModelSpec spec{.name = "small_cnn", .input = {3, 16, 16}, .classes = 4};
  QuantizeRequest request{.network = "small_cnn", .weights = folder + "/weights.safetensors"};
  save_weights(initial_weights(build_model(spec), 1), request.weights);
  request.classes = 4;
  request.image_size = 16;
  Random random({3});
  for (int i = 0; i < 30 * 3 * 16 * 16; ++i) request.inputs.push_back(static_cast<float>(random.uniform(-2, 3)));
  return request;
}

TEST(QuantizeRun, RangesAreChosenOnceForWaysThatChangeWeightsAfterwards) {
  const Folder folder("quantize_ways");
  QuantizeRequest request = random_network(folder.path());
  request.repair = Repair::full;
  request.calibrate.rounding_steps = 8;
  FloatNetwork network = open_network(request);
  for (size_t n = 0; n < network.graph.nodes.size(); ++n)  // with two outputs nothing is distilled
    if (network.graph.nodes[n].op == Op::flatten) network.graph.outputs.push_back(static_cast<int>(n));
  ASSERT_EQ(network.graph.outputs.size(), 2u);
  testing::internal::CaptureStderr();
  const Quantized result = quantize(request, network, at::kCPU);
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_EQ(result.repairs.size(), 4u);  // none, biases, equalization, rounding
  for (const Quantized::RepairTrial& trial : result.repairs) {
    EXPECT_EQ(trial.refused, "") << trial.name;
    EXPECT_LT(trial.lost, 0.1) << trial.name;
  }
  EXPECT_EQ(times("choose ranges: ", said), 2u) << said;  // equalization changes the weights before
  EXPECT_EQ(times("calibrate: ", said), 2u) << said;
  EXPECT_EQ(result.comparison.differing_codes(), 0);
}

TEST(QuantizeRun, ASentenceSaysThatAnOutputSaysNothingOnManyImages) {
  const Folder folder("quantize_silent");
  QuantizeRequest request = random_network(folder.path());
  request.method = CalibrationMethod::minmax;
  request.repair = Repair::none;
  const std::string out = folder.path() + "/int8.safetensors";
  /// Returns on how many of the six images that measure the output is silent, where so many of 30 inputs are nearly 0.
  const auto silent_with = [&](size_t faint) {
    QuantizeRequest some = request;
    for (size_t i = 0; i < faint * 3 * 16 * 16; ++i) some.inputs[i] *= 1e-5f;
    const Quantized result = quantize(some, open_network(some), at::kCPU);
    EXPECT_EQ(result.measured_on, 6u);
    write_checkpoint(out, result.graph);
    const size_t silent = result.outputs.front().silent;
    const std::string sentence = fmt::format(" says nothing on {} of 6 images, ", silent);
    for (const std::string& shown : {cli::quantized_text(result, out), cli::quantized_page(result, "net")})
      EXPECT_EQ(times(sentence, shown), silent > 1 ? 1u : 0u) << shown;
    return silent;
  };
  EXPECT_EQ(silent_with(0), 0u);
  EXPECT_EQ(silence_note({{.name = "score", .silent = 1}}, 4), "") << "one image is the median of four";
  const size_t of_most = silent_with(24);
  EXPECT_GT(of_most, 1u);
  EXPECT_LT(of_most, 6u);
}

TEST(QuantizeRun, JsonSaysWhatWasNotTriedAndWhy) {
  Quantized result;
  result.ranges.trials = {{{CalibrationMethod::mse}, 0.25}, {kJointRanges, 0.125}};
  result.ranges.chosen = 1;
  auto document = nlohmann::json::parse(cli::quantized_json(result, "int8.safetensors"));
  EXPECT_EQ(document.at("ranges"), "joint");
  EXPECT_TRUE(document.at("left_out").empty());
  result.ranges.trials.pop_back();
  result.ranges.chosen = 0;
  result.ranges.joint_fits = false;
  document = nlohmann::json::parse(cli::quantized_json(result, "int8.safetensors"));
  EXPECT_EQ(document.at("ranges"), "mse");
  EXPECT_EQ(document.at("trials").size(), 1u);
  EXPECT_EQ(document.at("left_out"),
            (nlohmann::json::array({{{"ranges", "joint"}, {"why", "one image's gradients exceed the GPU's memory"}}})));
}

}  // namespace
}  // namespace octet
