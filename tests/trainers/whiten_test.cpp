// SPDX-License-Identifier: Apache-2.0
// model.whiten.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "tests/trainers/tiny.h"
#include "trainers/loop/batches.h"
#include "trainers/run/run.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::message_of;

octet::Run opened(const Folder& folder, const std::string& model) {
  return open_run(parse_recipe("data: {format: synthetic, synthetic_size: 64}\nmodel: " + model, "r.yaml", {}),
                  {folder.path()});
}

/// What the filters give over all patches of the images: no correlations, and variance 1 where the images vary at all.
TEST(Whiten, FirstLayerGivesUncorrelatedValuesInBothSigns) {
  const Folder folder("whiten");
  const octet::Run run = opened(folder, "{name: resnet9, width: 0.25, whiten: true}\n");
  const Weights weights = starting_weights(run);
  const at::Tensor weight = weights.at("prep.conv.weight").detach(), positive = weight.slice(0, 0, 16, 2);
  EXPECT_TRUE(weight.slice(0, 1, 16, 2).equal(-positive));
  std::vector<at::Tensor> values;
  for_inputs(run.data, *run.data.train_set, run.data.train, 64, at::kCPU, [&](const at::Tensor& x) {
    values.push_back(at::conv2d(x.to(at::kDouble), positive.to(at::kDouble)).transpose(0, 1).reshape({8, -1}));
  });
  const at::Tensor covariance = at::cov(at::cat(values, 1)), variances = covariance.diagonal();
  EXPECT_LT((covariance - variances.diag()).abs().max().item<double>(), 1e-4);
  EXPECT_GT(variances[0].item<double>(), 0.98);
  EXPECT_LT(variances.max().item<double>(), 1.001);

  const Weights random = initial_weights(run.graph, run.recipe.seed);
  EXPECT_TRUE(weights.at("layer1.conv.weight").equal(random.at("layer1.conv.weight")));
}

TEST(Whiten, OnlyOneConvolutionMayReadTheImages) {
  const Folder folder("whiten_two");
  const octet::Run run =
      opened(folder,
             "{name: graph, whiten: true, graph: [{name: first, op: conv2d, out_channels: 3, kernel: "
             "3, groups: 3}, {name: pool, op: global_avg_pool}, {name: flat, op: flatten}, {name: fc, "
             "op: linear, out_channels: 10, bias: true}]}\n");
  const std::string message = message_of(ExitCode::usage, [&] { starting_weights(run); });
  EXPECT_NE(message.find("model.whiten: 'first' reads the images"), std::string::npos) << message;
}

}  // namespace
}  // namespace octet
