// SPDX-License-Identifier: Apache-2.0
// Ranges chosen together on a GPU are the CPU's, but for what its sums round otherwise.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "src/train/repair/joint_ranges.h"
#include "src/train/repair/output_error.h"
#include "tests/cuda/gpu.h"
#include "tests/train/rounded_networks.h"

namespace octet {
namespace {

std::vector<EdgeNoise> noises(at::Device device) {
  const Graph graph = test::residual_network("relu");
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), uniform_bits(8, 8));
  for (const auto& [name, weight] : model.weights()) at::Tensor(weight).set_data(weight.detach().to(device));
  const at::Tensor x = test::input_images(graph.nodes[0].shape, 24).to(device);
  return edge_noises(model, {{x.narrow(0, 0, 16), x.narrow(0, 16, 8)}, {}}, float_outputs(model, {x}).median, [] {});
}

TEST(JointRangesCuda, NoiseIsTheCpus) {
  OCTET_NEEDS_GPU();
  const std::vector<EdgeNoise> cpu = noises(at::kCPU), gpu = noises(at::kCUDA);
  ASSERT_EQ(gpu.size(), cpu.size());
  for (size_t e = 0; e < cpu.size(); ++e) {
    for (int k = 0; k < kReaches; ++k) {
      double wanted = 0, got = 0;
      for (const float noise : cpu[e].noise[k]) wanted += noise;
      for (const float noise : gpu[e].noise[k]) got += noise;
      EXPECT_NEAR(got, wanted, 0.02 * wanted) << e << " " << k;
    }
  }
}

}  // namespace
}  // namespace octet
