// SPDX-License-Identifier: Apache-2.0
// What a forward pass on codes refuses before anything is trained, and when recordings of it are outdated. Needs no
// GPU.
#include "src/train/qat/int8_forward.h"

#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/names.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

constexpr QuantizedModel::Mode kOnCodes{.training = true};

/// Returns the refusal of a network, or "".
std::string forward_refusal(const Graph& graph, const QuantSpec& spec, EdgeScales edges = EdgeScales::fixed,
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
  EXPECT_EQ(forward_refusal(resnet, {}), "");
  EXPECT_EQ(forward_refusal(resnet, {}, EdgeScales::observed), "");
  EXPECT_EQ(forward_refusal(resnet, {.weight_bits = 4}), "");
  expect_part(forward_refusal(resnet, {}, EdgeScales::fixed, at::kCPU), "runs on a GPU only");
  for (const EdgeScales edges : {EdgeScales::lsq, EdgeScales::lsq_plus})
    expect_part(forward_refusal(resnet, {}, edges), "ranges cannot learn");
  expect_part(forward_refusal(resnet, {.sparsity = Sparsity::two_of_four}), "quant.sparsity: none");
  EXPECT_EQ(forward_refusal(resnet, {.activation_bits = 4}), "");
  EXPECT_EQ(forward_refusal(resnet, {.activation_bits = 4, .residual_bits = 8}), "");
  expect_part(forward_refusal(resnet, {.activation_bits = 3}), "'conv1': it writes codes of 3 bits");
  expect_part(forward_refusal(resnet, {.layers = {{"layer2.0.conv1", 0, 2}}}),
              "'layer2.0.conv1': it writes codes of 2 bits");
  // What is no layer has no such limit: its values before rounding are computed again.
  EXPECT_EQ(forward_refusal(resnet, {.layers = {{"input", 0, 2}}}), "");
}

TEST(Int8Forward, RefusesSlopesAndLargeKernels) {
  const auto network = [](const std::string& op, int kernel) {
    return graph_of({{"conv", "conv2d", {}, {{"out_channels", 4}, {"kernel", kernel}, {"pad", kernel / 2}}},
                     {"next", op, {}, {}},
                     {"flatten", "flatten", {}, {}},
                     {"fc", "linear", {}, {{"out_channels", 4}}}});
  };
  EXPECT_EQ(forward_refusal(network("relu", 7), {}), "");
  expect_part(forward_refusal(network("relu", 9), {}), "'conv': its kernel has more than 64 taps");
  expect_part(forward_refusal(network("prelu", 3), {}), "'next': its slopes train");
}

/// Returns the share of the layers' values whose gradient passes by their codes where the simulation stops it, or the
/// other way round.
double told_otherwise(const Graph& graph, uint64_t seed, CalibrationMethod method, int bits) {
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, seed), {.activation_bits = bits}, method);
  const Int8Graph int8 = model.convert(test::preprocessing_for(graph.nodes[0].shape), {});
  const Prepared& prepared = model.prepared();
  long values = 0, otherwise = 0;
  const c10::NoGradGuard no_grad;
  model.forward_changing(test::random_batch(static_cast<int>(seed)), [&](int n, Unfinished& y) {
    const Node& node = prepared.graph.nodes[n];
    if (!has_weight(node.op) || !prepared.has_edge(n)) return;
    const Int8Node& edge = int8.nodes[n];
    const at::Tensor sums = add_up({.value = y.value, .bias = y.bias, .residual = y.residual}).contiguous();
    const kernels::Clamp clamp = node.activation == Activation::relu    ? kernels::kRelu
                                 : node.activation == Activation::relu6 ? kernels::kRelu6
                                                                        : kernels::kNoClamp;
    for (int64_t i = 0; i < sums.numel(); ++i) {
      const float v = sums.const_data_ptr<float>()[i], steps = std::rint(clamp(v) / edge.out.scale);
      const float code = steps + static_cast<float>(edge.out.zero_point);
      const bool simulated = clamp.passes(v) && code >= static_cast<float>(edge.out.quant_min) &&
                             code <= static_cast<float>(edge.out.quant_max);
      const int32_t written = clamp_code(code, edge.clamp_min, edge.clamp_max);
      ++values;
      otherwise += simulated != (written > edge.clamp_min && written < edge.clamp_max);
    }
  });
  EXPECT_GT(values, 10000);
  return static_cast<double>(otherwise) / static_cast<double>(values);
}

/// Most of what codes tell otherwise is what a ReLU keeps and rounds to 0: of 8 bits one value in a hundred, of fewer
/// bits more.
TEST(Int8Forward, CodesTellWhatPassesButForAFewValues) {
  const std::map<int, double> most = {{8, 0.01}, {4, 0.12}};
  for (const auto& [bits, share] : most) {
    for (const CalibrationMethod method : {CalibrationMethod::minmax, CalibrationMethod::mse}) {
      const double resnet = told_otherwise(test::resnet8(), 4, method, bits);
      const double mobile = told_otherwise(build_model(test::family("mobilenet_v2", 32)), 4, method, bits);
      const std::string name = std::string(name_in(kCalibrationMethods, method)) + "_" + std::to_string(bits);
      RecordProperty(name + "_resnet8", std::to_string(resnet));
      RecordProperty(name + "_mobilenet_v2", std::to_string(mobile));
      EXPECT_LT(resnet, share) << name;
      EXPECT_LT(mobile, share) << name;
      EXPECT_GT(resnet + mobile, 0) << "a code tells less than the value did";
    }
  }
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
