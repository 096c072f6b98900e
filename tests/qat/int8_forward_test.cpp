// SPDX-License-Identifier: Apache-2.0
// What a forward pass on codes refuses before anything is trained, and when recordings of it are outdated. Needs no
// GPU.
#include "src/train/qat/int8_forward.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "tests/qat/networks.h"

namespace octet {
namespace {

constexpr QuantizedModel::Mode kOnCodes{.training = true};

/// Returns the refusal of a network, or "".
std::string refusal(const Graph& graph, const QuantSpec& spec, EdgeScales edges = EdgeScales::fixed,
                    at::DeviceType device = at::kCUDA) {
  try {
    require_int8_forward(prepare(fuse(graph), spec), edges, device);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("qat.forward: simulation"), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

void expect_part(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' lacks '" << part << "'";
}

Graph graph_of(const std::vector<NodeSpec>& nodes) {
  return build_model({.name = "graph", .input = {3, 16, 16}, .classes = 4, .graph = nodes});
}

TEST(Int8Forward, RefusesWhatItCannotTrain) {
  const Graph resnet = test::resnet8();
  EXPECT_EQ(refusal(resnet, {}), "");
  EXPECT_EQ(refusal(resnet, {}, EdgeScales::observed), "");
  EXPECT_EQ(refusal(resnet, {.weight_bits = 4}), "");
  expect_part(refusal(resnet, {}, EdgeScales::fixed, at::kCPU), "runs on a GPU only");
  for (const EdgeScales edges : {EdgeScales::lsq, EdgeScales::lsq_plus})
    expect_part(refusal(resnet, {}, edges), "ranges cannot learn");
  expect_part(refusal(resnet, {.sparsity = Sparsity::two_of_four}), "quant.sparsity: none");
  expect_part(refusal(resnet, {.activation_bits = 4}), "'conv1': it writes codes of 4 bits");
  expect_part(refusal(resnet, {.layers = {{"layer2.0.conv1", 0, 7}}}), "'layer2.0.conv1': it writes codes of 7 bits");
  // What is no layer has no such limit: its values before rounding are computed again.
  EXPECT_EQ(refusal(resnet, {.layers = {{"input", 0, 4}}}), "");
}

TEST(Int8Forward, RefusesSlopesAndLargeKernels) {
  const auto network = [](const std::string& op, int kernel) {
    return graph_of({{"conv", "conv2d", {}, {{"out_channels", 4}, {"kernel", kernel}, {"pad", kernel / 2}}},
                     {"next", op, {}, {}},
                     {"flatten", "flatten", {}, {}},
                     {"fc", "linear", {}, {{"out_channels", 4}}}});
  };
  EXPECT_EQ(refusal(network("relu", 7), {}), "");
  expect_part(refusal(network("relu", 9), {}), "'conv': its kernel has more than 64 taps");
  expect_part(refusal(network("prelu", 3), {}), "'next': its slopes train");
}

/// Ranges are part of what is launched: a recording is outdated where they have changed, not where they were set.
TEST(Int8Forward, OtherRangesOutdateRecordings) {
  const Graph graph = test::resnet8();
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), {}, CalibrationMethod::minmax,
                                          {.averaging = 0.5, .forward = QatForward::int8});
  const int first = model.launches(kOnCodes);
  EXPECT_EQ(model.launches(kOnCodes), first);
  const auto state = model.state();
  // As with averaged weights: the ranges of the validation are observed anew, then the former ones come back.
  model.restart_observers();
  model.forward(test::random_batch(1), {.observe = true});
  model.load_state(state);
  EXPECT_EQ(model.launches(kOnCodes), first);
  model.forward(test::random_batch(2), {.observe = true});
  const int second = model.launches(kOnCodes);
  EXPECT_NE(second, first);
  EXPECT_EQ(model.launches(kOnCodes), second);
  model.choose_edges(CalibrationMethod::mse, 100);
  EXPECT_NE(model.launches(kOnCodes), second);
  EXPECT_EQ(model.launches({.training = true, .batch_norm_training = true}), 0);
  EXPECT_EQ(model.launches({}), 0);
}

TEST(Int8Forward, TheSimulationHasOneKindOfLaunches) {
  const Graph graph = test::resnet8();
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), {});
  EXPECT_EQ(model.launches(kOnCodes), 0);
  model.choose_edges(CalibrationMethod::mse, 100);
  EXPECT_EQ(model.launches(kOnCodes), 0);
}

}  // namespace
}  // namespace octet
