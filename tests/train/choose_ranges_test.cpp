// SPDX-License-Identifier: Apache-2.0
// What quantization changes at the outputs, and ranges that are chosen by it.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/quant/plan.h"
#include "src/train/proof/deployed_network.h"
#include "src/train/repair/correct_biases.h"
#include "src/train/repair/output_error.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

at::Tensor input_images(int seed, int count) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return at::randn({count, 3, 16, 16}).contiguous(at::MemoryFormat::ChannelsLast);
}

/// A model whose input saw one value 200 times as far as the others.
QuantizedModel seen_an_outlier() {
  const Graph graph = build_model(test::family("resnet8", 16));
  QuantizedModel model(prepare(fuse(graph), {}), test::random_weights(graph, 1), {});
  at::Tensor x = input_images(3, 64);
  x[63][0][0][0] = 800;
  model.forward(x, {.observe = true, .quantize = false});
  model.calibrate(CalibrationMethod::minmax, 100);
  return model;
}

/// What a model loses against its own weights in float.
OutputErrors errors_of(QuantizedModel& model, const std::vector<at::Tensor>& x) {
  return {model, x, float_outputs(model, x)};
}

TEST(OutputErrors, AgreeWithTheirDefinition) {
  const c10::NoGradGuard no_grad;
  QuantizedModel model = seen_an_outlier();
  model.choose_edges(CalibrationMethod::percentile, 99.9);
  const std::vector<at::Tensor> x = {input_images(4, 5), input_images(5, 3)};
  const std::vector<OutputError> errors = errors_of(model, x).measure();
  ASSERT_EQ(errors.size(), 1u);
  const at::Tensor all = at::cat({x[0], x[1]});
  const at::Tensor wanted = model.forward(all, {.quantize = false}).to(at::kDouble);
  const at::Tensor got = model.forward(all, {}).to(at::kDouble);
  const at::Tensor noise = (wanted - got).square().sum(1),
                   signal = (wanted - std::get<0>(wanted.median(0))).square().sum(1);
  EXPECT_NEAR(errors[0].lost, (noise / (noise + signal)).mean().item<double>(), 1e-6);
  EXPECT_NEAR(errors[0].sqnr_db, 10 * std::log10(wanted.square().sum().item<double>() / noise.sum().item<double>()),
              1e-3);
  EXPECT_DOUBLE_EQ(errors[0].agreement, wanted.argmax(1).eq(got.argmax(1)).to(at::kDouble).mean().item<double>());
}

TEST(OutputErrors, OneImageFarAwayDoesNotHideWhatTheOthersLose) {
  const Graph graph = build_model(test::family("resnet8", 16));
  std::vector<std::vector<at::Tensor>> y = {{at::randn({9, 10, 1, 1})}, {at::randn({7, 10, 1, 1})}};
  y[0][0][0].fill_(1e4);
  const FloatOutputs wanted(y);
  const OutputError error = output_errors(graph, wanted, [&](size_t b) {
                              return std::vector<at::Tensor>{b == 0 ? y[0][0] : y[1][0] + 1};
                            }).front();
  EXPECT_NEAR(error.lost, 7.0 / 16 / 2, 0.08);  // half of what seven images of 16 say; around the mean, 1e-6
}

TEST(OutputErrors, OfAFloatNetworkAreNone) {
  const c10::NoGradGuard no_grad;
  QuantizedModel model = seen_an_outlier();
  const std::vector<at::Tensor> x = {input_images(4, 5)};
  const std::vector<bool> none(model.prepared().graph.nodes.size(), false);
  const OutputError error = output_errors(model.prepared().graph, float_outputs(model, x), [&](size_t b) {
                              return partly_quantized_outputs(model, x[b], none);
                            }).front();
  EXPECT_EQ(error.lost, 0);
  EXPECT_TRUE(std::isinf(error.sqnr_db));
  EXPECT_EQ(error.agreement, 1);
}

TEST(OutputErrors, OfARepairedNetworkAreAgainstTheFloatNetworkBefore) {
  const c10::NoGradGuard no_grad;
  QuantizedModel model = seen_an_outlier();
  model.choose_edges(CalibrationMethod::percentile, 99.9);
  const std::vector<at::Tensor> x = {input_images(4, 5)};
  const FloatOutputs before = float_outputs(model, x);
  correct_biases(model, model.weights(), x[0]);
  const OutputErrors errors(model, x, before);
  EXPECT_FALSE(float_outputs(model, x).y[0][0].equal(before.y[0][0]));  // float biases moved
  const at::Tensor got = model.forward(x[0], {}).to(at::kDouble), wanted = before.y[0][0].to(at::kDouble).view_as(got);
  const double noise = (wanted - got).square().sum().item<double>();
  EXPECT_NEAR(errors.measure()[0].sqnr_db, 10 * std::log10(wanted.square().sum().item<double>() / noise), 1e-3);
}

TEST(OutputErrors, OfAFloatNetworkNeedNoCalibration) {
  const c10::NoGradGuard no_grad;
  const Graph graph = build_model(test::family("resnet8", 16));
  QuantizedModel model(prepare(fuse(graph), {}), test::random_weights(graph, 1), {});
  const at::Tensor x = input_images(4, 5);
  EXPECT_TRUE(float_outputs(model, {x}).y[0][0].flatten(1).equal(model.forward(x, {.quantize = false})));
}

TEST(ChooseRanges, AnOutlierThatCalibrationSawDoesNotTakeTheCodes) {
  const c10::NoGradGuard no_grad;
  QuantizedModel model = seen_an_outlier();
  const std::vector<at::Tensor> held = {input_images(6, 16)};
  const std::vector<RangeMethod> methods = {{CalibrationMethod::minmax}, {CalibrationMethod::percentile, 99.9}};
  int calls = 0;
  const ChosenRanges ranges =
      choose_ranges(model, errors_of(model, held), methods, {}, 2, [&](int trial) { EXPECT_EQ(trial, calls++); });
  EXPECT_EQ(calls, 2);
  ASSERT_EQ(ranges.trials.size(), 2u);
  EXPECT_EQ(ranges.chosen, 1u);
  EXPECT_LT(ranges.trials[1].lost, ranges.trials[0].lost / 10);
  EXPECT_TRUE(ranges.edges.empty());
  EXPECT_DOUBLE_EQ(errors_of(model, held).lost(), ranges.lost);
}

TEST(ChooseRanges, ASingleEdgeGetsOtherRangesWhereThatPays) {
  const c10::NoGradGuard no_grad;
  QuantizedModel model = seen_an_outlier();
  const std::vector<at::Tensor> held = {input_images(6, 16)};
  // Both clip most values of all edges or none of the outlier: with one of them for all edges a single edge is better
  // with the other.
  const std::vector<RangeMethod> methods = {{CalibrationMethod::percentile, 60}, {CalibrationMethod::minmax}};
  const ChosenRanges ranges = choose_ranges(model, errors_of(model, held), methods, {}, 40, [](int) {});
  const double one_for_all = std::min(ranges.trials[0].lost, ranges.trials[1].lost);
  ASSERT_FALSE(ranges.edges.empty());
  EXPECT_LT(ranges.lost, 0.99 * one_for_all);
  EXPECT_DOUBLE_EQ(errors_of(model, held).lost(), ranges.lost);
  for (const ChosenRanges::Edge& edge : ranges.edges) EXPECT_NE(edge.before, edge.after) << edge.node;
}

/// Methods of which all but joint clip too much.
const std::vector<RangeMethod> kClipAndJoint = {{CalibrationMethod::percentile, 50},
                                                {CalibrationMethod::percentile, 60},
                                                {CalibrationMethod::percentile, 55},
                                                kJointRanges};

TEST(ChooseRanges, ObserversGoOnWithTheBestMethodWhereJointWins) {
  const c10::NoGradGuard no_grad;
  QuantizedModel model = seen_an_outlier();
  const std::vector<at::Tensor> held = {input_images(6, 16)}, seen = {input_images(7, 16)};
  const ChosenRanges ranges = choose_ranges(model, errors_of(model, held), kClipAndJoint, {seen, {}}, 4, [](int) {});
  EXPECT_EQ(ranges.chosen, 3u);
  EXPECT_TRUE(ranges.joint_fits);
  EXPECT_DOUBLE_EQ(errors_of(model, held).lost(), ranges.lost);
  const at::Tensor calibration = model.state().at("calibration");
  EXPECT_EQ(calibration[0].item<double>(), static_cast<double>(CalibrationMethod::percentile));
  EXPECT_EQ(calibration[1].item<double>(), 60);
}

TEST(ChooseRanges, JointIsLeftOutWhereOneImageDoesNotFit) {
  const c10::NoGradGuard no_grad;
  QuantizedModel model = seen_an_outlier();
  const std::vector<at::Tensor> held = {input_images(6, 16)}, seen = {input_images(7, 4)};
  int calls = 0;  // of the joint trial: its own, then one for each batch
  const ChosenRanges ranges =
      choose_ranges(model, errors_of(model, held), kClipAndJoint, {seen, {}}, 16, [&](int trial) {
        if (trial == 3 && ++calls > 1 && calls < 5) throw c10::OutOfMemoryError({"a test", "", 0}, "no memory");
      });
  EXPECT_FALSE(ranges.joint_fits);
  ASSERT_EQ(ranges.trials.size(), 3u);
  EXPECT_EQ(ranges.chosen, 1u);
  EXPECT_DOUBLE_EQ(errors_of(model, held).lost(), ranges.lost);
}

TEST(ChooseRanges, ACallThatThrowsEndsIt) {
  QuantizedModel model = seen_an_outlier();
  const std::vector<at::Tensor> held = {input_images(6, 4)};
  EXPECT_THROW(choose_ranges(model, errors_of(model, held), {{CalibrationMethod::minmax}}, {}, 5,
                             [](int) { throw Error(ExitCode::interrupted, "stop"); }),
               Error);
}

}  // namespace
}  // namespace octet
