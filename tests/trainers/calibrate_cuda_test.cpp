// SPDX-License-Identifier: Apache-2.0
// A network calibrated on the GPU gets the scales that the CPU gives it, in a session that trains with TF32.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/cuda/gpu.h"
#include "trainers/run/measure.h"
#include "trainers/run/ptq_search.h"

namespace octet {
namespace {

/// How far scales may differ, relative. Sums of a convolution in another order move them by up to 8e-7 in resnet8 and
/// 2e-6 in mobilenet_v2 (LibTorch's two convolutions on the CPU, three seeds); inputs and weights rounded to TF32's ten
/// bits, there too, move the worst edge by 2e-4 to 3e-3.
constexpr double kAgree = 2e-5;

struct Calibrated {
  std::vector<QParams> edges;
  at::Tensor ranges;  // [nodes, 2], lowest and highest value seen
  std::vector<std::string> names;
  bool tf32_after = false;
};

bool tf32_allowed() {
  const at::Context& context = at::globalContext();
  return context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV) == at::Float32Precision::TF32 &&
         context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) == at::Float32Precision::TF32;
}

Calibrated calibrated(const std::string& network, at::Device device) {
  Recipe recipe;
  recipe.model.name = network;
  recipe.data.format = "synthetic";
  recipe.data.channels = 3;
  recipe.data.image_size = 32;
  recipe.data.synthetic_size = 128;
  recipe.data.mean = recipe.data.std = {0.5, 0.4, 0.3};
  recipe.calibrate.images = 64;
  recipe.calibrate.batch_size = 32;
  recipe.calibrate.method = CalibrationMethod::minmax;    // as exact as the activations; the others search
  recipe.quant.observer = ObserverKind::histogram;        // which keeps the range as it was seen
  recipe.quant.activation = ActivationScheme::affine_u8;  // with zero points
  recipe.cuda.tf32 = true;
  recipe.cuda.benchmark = false;  // the same convolutions in every run
  const auto run = open_run(recipe, {}, device);
  QuantizedModel model = make_quantized(run, starting_weights(run));
  calibrate(model, run);
  Calibrated result{model.edges(), model.state().at("observer.range"), {}, tf32_allowed()};
  for (const Node& node : model.prepared().graph.nodes) result.names.push_back(node.name);
  return result;
}

/// Where zero lies among the codes, before rounding.
double exact_zero(const Calibrated& c, size_t edge) {
  const double lowest = std::min(0.0, c.ranges[static_cast<int64_t>(edge)][0].item<double>());
  return c.edges[edge].quant_min - lowest / c.edges[edge].scale;
}

TEST(CalibrateCuda, GivesTheCpusScalesWhateverTrainingMayRound) {
  OCTET_NEEDS_GPU();
  for (const std::string network : {"resnet8", "mobilenet_v2"}) {
    SCOPED_TRACE(network);
    const Calibrated gpu = calibrated(network, {at::kCUDA, 0}), cpu = calibrated(network, at::kCPU);
    EXPECT_TRUE(gpu.tf32_after);  // TF32 was allowed and is again
    ASSERT_EQ(gpu.edges.size(), cpu.edges.size());
    EXPECT_EQ(gpu.edges[0], cpu.edges[0]);  // of the images: the same bits
    int with_zero_point = 0;
    for (size_t n = 1; n < cpu.edges.size(); ++n) {
      SCOPED_TRACE(cpu.names[n]);
      const QParams &a = gpu.edges[n], &b = cpu.edges[n];
      EXPECT_NEAR(a.scale / static_cast<double>(b.scale), 1, kAgree);
      // The lowest value and the scale move zero by kAgree of all steps each.
      const double zero = exact_zero(cpu, n), may_move = 2 * kAgree * (b.quant_max - b.quant_min);
      const double to_a_tie = std::abs(zero - std::floor(zero) - 0.5);
      EXPECT_LE(std::abs(a.zero_point - b.zero_point), to_a_tie <= may_move ? 1 : 0) << zero;
      if (b.zero_point > b.quant_min) ++with_zero_point;
    }
    EXPECT_GT(with_zero_point, 0);
  }
}

/// cuDNN convolves int8 codes: of calibrate --all it keeps symmetric_s8 and names what it refuses.
TEST(CalibrateCuda, EngineCudnnKeepsTheResultsItHas) {
  OCTET_NEEDS_GPU();
  if (const Support cudnn = find_engine("cudnn").available(); !cudnn.ok) GTEST_SKIP() << cudnn.reason;
  Recipe recipe;
  recipe.model.name = "resnet8";
  recipe.data.format = "synthetic";
  recipe.data.channels = 3;
  recipe.data.image_size = 32;
  recipe.data.synthetic_size = 128;
  recipe.data.mean = recipe.data.std = {0.5, 0.4, 0.3};
  recipe.calibrate.images = 64;
  recipe.evaluate.engines = {"cudnn"};
  recipe.evaluate.fallback = "cuda";
  const auto run = open_run(recipe, {}, {at::kCUDA, 0});
  const PtqChoice choice =
      choose_ptq(run, starting_weights(run), /*all=*/true,
                 [](const octet::Run& tried, const Int8Graph& graph) { return compile_engine(tried, "cudnn", graph); });
  ASSERT_EQ(choice.results.size(), 15u);
  for (const PtqResult& result : choice.results) {
    EXPECT_EQ(result.refused.empty(), result.activation == ActivationScheme::symmetric_s8)
        << name_in(kActivationSchemes, result.activation);
    if (!result.refused.empty()) {
      EXPECT_NE(result.refused.find("engine cudnn"), std::string::npos) << result.refused;
    }
  }
  EXPECT_EQ(choice.int8_test.images, 128);
}

}  // namespace
}  // namespace octet
