// SPDX-License-Identifier: Apache-2.0
// Learned rounding on a GPU, where steps are recorded and replayed: two runs give the same bits, and errors as on the
// CPU.
#include <ATen/TensorOperators.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include <optional>

#include "src/train/model/device.h"
#include "src/train/model/step_graph.h"
#include "src/train/repair/learned_codes.h"
#include "src/train/repair/steps.h"
#include "tests/cuda/gpu.h"
#include "tests/train/rounded_networks.h"

namespace octet {
namespace {

struct UnitsAndCodes {
  std::vector<std::vector<int8_t>> codes;
  std::vector<Reconstructed> units;
};

UnitsAndCodes rounded(const std::string& activation, bool blocks, at::Device device, bool tf32 = false,
                      std::optional<double> drop = {}) {
  const Graph graph = test::residual_network(activation);
  const int bits = drop ? 3 : 8;
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), uniform_bits(bits, 3));
  for (const auto& [name, weight] : model.weights()) at::Tensor(weight).set_data(weight.detach().to(device));
  UnitsAndCodes result;
  reconstruct(model, test::input_images(graph.nodes[0].shape, 24).to(device), blocks,
              {.steps = 300, .batch_size = 8, .drop = drop.value_or(0), .tf32 = tf32},
              [&](const Reconstructed& unit) { result.units.push_back(unit); });
  result.codes = test::codes(model);
  return result;
}

/// Returns the error of all units. A single one says little: a weight near 1/2 may be rounded the other way, and later
/// units then see other inputs. On the CPU weights off by 1e-6 of themselves moved 0, 19 and 21 of 1,332 codes of
/// "relu, blocks", the error of its last unit by a factor of 0.55 to 1, the sum by -2 to +6 %.
double error_of(const UnitsAndCodes& result) {
  double sum = 0;
  for (const Reconstructed& unit : result.units) sum += unit.rounded;
  return sum;
}

TEST(ReconstructCuda, TwoRunsGiveTheSameBitsAndTheCpusErrors) {
  OCTET_NEEDS_GPU();
  for (const std::string activation : {"relu", "silu"}) {
    for (const bool blocks : {false, true}) {
      SCOPED_TRACE(activation + (blocks ? ", blocks" : ", layers"));
      const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
      const UnitsAndCodes gpu = rounded(activation, blocks, at::kCUDA), again = rounded(activation, blocks, at::kCUDA),
                          cpu = rounded(activation, blocks, at::kCPU);
      EXPECT_EQ(gpu.codes, again.codes);
      ASSERT_EQ(gpu.units.size(), cpu.units.size());
      size_t better = 0;
      for (size_t i = 0; i < cpu.units.size(); ++i) {
        EXPECT_LE(gpu.units[i].rounded, gpu.units[i].nearest) << gpu.units[i].name;
        better += gpu.units[i].rounded < gpu.units[i].nearest ? 1 : 0;
      }
      EXPECT_NEAR(gpu.units[0].rounded / cpu.units[0].rounded, 1, 1e-2);  // before it nothing was rounded
      EXPECT_NEAR(error_of(gpu) / error_of(cpu), 1, 0.1);
      EXPECT_GE(better, cpu.units.size() / 2);  // with a few weights the nearest may be the best
    }
  }
}

TEST(ReconstructCuda, StepsInTf32GiveTheSameBitsAndErrorsThatAreMeasuredWithout) {
  OCTET_NEEDS_GPU();
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const UnitsAndCodes full = rounded("relu", true, at::kCUDA), tf32 = rounded("relu", true, at::kCUDA, true),
                      again = rounded("relu", true, at::kCUDA, true);
  EXPECT_EQ(tf32.codes, again.codes);
  ASSERT_EQ(tf32.units.size(), full.units.size());
  EXPECT_EQ(tf32.units[0].nearest, full.units[0].nearest);  // the others see what the first has become
  EXPECT_NEAR(error_of(tf32) / error_of(full), 1, 0.1);
}

/// A replayed step draws anew: the numbers are not those that were recorded.
TEST(ReconstructCuda, RecordedStepsDropOtherElementsEachTime) {
  OCTET_NEEDS_GPU();
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const at::Tensor before = at::full({1000}, 0.0f, at::kCUDA), quantized = before + 1, got = before.clone();
  const auto run = [&] {
    const Drop drop(0.5, 3, at::kCUDA);
    StepGraph graph(/*capture=*/true);
    std::vector<at::Tensor> all;
    for (int step = 0; step < StepGraph::kWarmUps + 4; ++step) {
      graph.run(0, [&] { got.copy_(drop(quantized, before)); });
      all.push_back(got.cpu());
      EXPECT_NEAR(all.back().mean().item<double>(), 0.5, 0.1) << step;
      for (int earlier = 0; earlier < step; ++earlier)
        EXPECT_FALSE(all[earlier].equal(all[step])) << earlier << " " << step;
    }
    return all;
  };
  const std::vector<at::Tensor> first = run(), second = run();
  for (size_t step = 0; step < first.size(); ++step) EXPECT_TRUE(first[step].equal(second[step])) << step;
}

TEST(ReconstructCuda, DroppingGivesTheSameBitsAndAboutTheCpusErrors) {
  OCTET_NEEDS_GPU();
  for (const std::string activation : {"relu", "silu"}) {
    SCOPED_TRACE(activation);
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    const UnitsAndCodes gpu = rounded(activation, true, at::kCUDA, false, 0.5),
                        again = rounded(activation, true, at::kCUDA, false, 0.5),
                        without = rounded(activation, true, at::kCUDA, false, 0.0),
                        cpu = rounded(activation, true, at::kCPU, false, 0.5);
    EXPECT_EQ(gpu.codes, again.codes);
    EXPECT_NE(gpu.codes, without.codes);
    EXPECT_NEAR(error_of(gpu) / error_of(cpu), 1, 0.3);  // other numbers are drawn there
  }
}

// 1 + 2^-12 has more bits than TF32.
TEST(ReconstructCuda, Tf32RoundsProductsAndConvolutionsAndIsRestored) {
  OCTET_NEEDS_GPU();
  const FullPrecision full;
  const at::Tensor one = at::eye(256, at::TensorOptions(at::kCUDA)), x = at::full({256, 256}, 1 + 0x1p-12, at::kCUDA);
  const auto product = [&] { return x.mm(one); };
  const auto convolution = [&] {
    return at::conv2d(x.reshape({4, 256, 8, 8}), one.reshape({256, 256, 1, 1})).reshape({256, 256});
  };
  {
    const TensorFloat32 rounded(true);
    EXPECT_FALSE(product().equal(x));
    EXPECT_FALSE(convolution().equal(x));
  }
  EXPECT_TRUE(product().equal(x));
  EXPECT_TRUE(convolution().equal(x));
}

}  // namespace
}  // namespace octet
