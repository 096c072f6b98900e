// SPDX-License-Identifier: Apache-2.0
// The float network on the GPU: images, weights and the walk of every network.
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "src/net/zoo.h"
#include "src/train/model/device.h"
#include "tests/cuda/gpu.h"

namespace octet {
namespace {

const at::Device kGpu(at::kCUDA, 0);

TEST(CudaModel, ImagesAreTheCpusBits) {
  OCTET_NEEDS_GPU();
  for (const int channels : {1, 2, 3, 600}) {
    const Images first{nullptr, 7, {channels, 16, 33}};
    const size_t bytes = first.count * first.shape.elements();
    std::vector<uint8_t> pixels(bytes);
    for (size_t i = 0; i < bytes; ++i) pixels[i] = static_cast<uint8_t>(i * 7 + i / 256);
    std::vector<float> mean(channels), std(channels);
    for (int c = 0; c < channels; ++c) {
      mean[c] = 0.3f + 0.37f * static_cast<float>(c % 3);
      std[c] = 0.01f + 0.2f * static_cast<float>(c % 5);
    }
    const Images images{pixels.data(), first.count, first.shape};
    const at::Tensor expected = images_to_tensor(images, mean, std, at::kCPU);
    const at::Tensor x = images_to_tensor(images, mean, std, kGpu);
    std::fill(pixels.begin(), pixels.end(), uint8_t{0});  // the caller's right, at once
    ASSERT_TRUE(x.is_cuda());
    EXPECT_EQ(x.strides(), expected.strides());
    EXPECT_TRUE(at::equal(x.cpu(), expected)) << channels;
  }
}

TEST(CudaModel, WeightsKeepLayoutAndGradients) {
  OCTET_NEEDS_GPU();
  ModelSpec spec;
  spec.name = "resnet8";
  const Graph graph = build_model(spec);
  Weights weights = initial_weights(graph, 1);
  for (auto& [name, tensor] : weights)
    if (tensor.dim() == 4) tensor.set_data(tensor.contiguous(at::MemoryFormat::ChannelsLast));
  const Weights there = to_device(weights, kGpu), back = to_device(there, at::kCPU);
  for (const auto& [name, tensor] : weights) {
    const at::Tensor& moved = there.at(name);
    EXPECT_TRUE(moved.is_cuda() && moved.is_leaf()) << name;
    EXPECT_EQ(moved.strides(), tensor.strides()) << name;
    EXPECT_EQ(moved.requires_grad(), tensor.requires_grad()) << name;
    EXPECT_TRUE(at::equal(back.at(name), tensor)) << name;
  }
}

TEST(CudaModel, WeightsGoThroughFiles) {
  OCTET_NEEDS_GPU();
  ModelSpec spec;
  spec.name = "resnet8";
  const Graph graph = build_model(spec);
  const Weights weights = to_device(initial_weights(graph, 1), kGpu);
  Weights loaded = to_device(initial_weights(graph, 2), kGpu);
  const std::string path = (std::filesystem::temp_directory_path() / "octet_cuda_weights.safetensors").string();
  save_weights(weights, path);
  load_weights(loaded, graph, path);
  std::filesystem::remove(path);
  for (const auto& [name, tensor] : loaded) {
    EXPECT_TRUE(tensor.is_cuda()) << name;
    EXPECT_TRUE(at::equal(tensor, weights.at(name))) << name;
  }
}

std::vector<Graph> every_network() {
  std::vector<Graph> all;
  for (const std::string_view name : model_names()) {
    ModelSpec spec;
    spec.name = std::string(name);
    const int size = name == "squeezenet1_1" ? 64 : 32;
    spec.input = {3, size, size};
    all.push_back(build_model(spec));
  }
  return all;
}

double relative_error(const at::Tensor& x, const at::Tensor& expected) {
  const at::Tensor wide = expected.to(at::kDouble);
  return (x.to(at::kDouble) - wide).norm().item<double>() / wide.norm().item<double>();
}

/// Compared with the CPU's float32. A float32 operation rounds by 2^-24 and errors of random sign grow with the square
/// root of their number: through 50 layers of up to 4608 inputs to sqrt(50 * 4608) * 2^-24 = 3e-5 at worst, on both
/// sides. TF32 rounds every input by 2^-11 instead and ends near 1e-3, so 1e-4 separates them.
TEST(CudaModel, WalksEveryNetworkInFullFloat32) {
  OCTET_NEEDS_GPU();
  const c10::NoGradGuard no_grad;
  constexpr double kTolerance = 1e-4;
  at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV, at::Float32Precision::TF32);
  at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL, at::Float32Precision::TF32);
  for (const Graph& graph : every_network()) {
    const Weights weights = initial_weights(graph, 3), there = to_device(weights, kGpu);
    const Shape& shape = graph.nodes[0].shape;
    at::manual_seed(5);
    const at::Tensor x = at::randn({2, shape.c, shape.h, shape.w}).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor expected = walk(graph, weights, x, {}), moved = x.to(kGpu);
    {
      const FullPrecision full;
      EXPECT_LT(relative_error(walk(graph, there, moved, {}).cpu(), expected), kTolerance) << graph.name;
    }
    EXPECT_EQ(first_non_finite(graph, there, moved), "") << graph.name;
  }
  // The tolerance must detect one convolution in TF32.
  const at::Tensor x = at::randn({4, 64, 32, 32}), w = at::randn({64, 64, 3, 3});
  const at::Tensor expected = at::conv2d(x.to(at::kDouble), w.to(at::kDouble), {}, {1, 1}, {1, 1});
  const at::Tensor gx = x.to(kGpu), gw = w.to(kGpu);
  EXPECT_GT(relative_error(at::conv2d(gx, gw, {}, {1, 1}, {1, 1}).cpu(), expected), kTolerance);
  const FullPrecision full;
  EXPECT_LT(relative_error(at::conv2d(gx, gw, {}, {1, 1}, {1, 1}).cpu(), expected), kTolerance);
}

TEST(CudaModel, FullPrecisionOutlivesAutocast) {
  OCTET_NEEDS_GPU();
  const c10::NoGradGuard no_grad;
  const at::Tensor x = at::randn({8, 64}, kGpu), w = at::randn({64, 64}, kGpu);
  at::autocast::set_autocast_enabled(at::kCUDA, true);
  const at::ScalarType half = at::mm(x, w).scalar_type();
  at::ScalarType full_type = half;
  {
    const FullPrecision full;
    full_type = at::mm(x, w).scalar_type();
  }
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  at::autocast::clear_cache();
  EXPECT_EQ(half, at::kHalf);
  EXPECT_EQ(full_type, at::kFloat);
}

TEST(CudaModel, NamesWhereNonFiniteBegins) {
  OCTET_NEEDS_GPU();
  ModelSpec spec;
  spec.name = "resnet8";
  const Graph graph = build_model(spec);
  const Weights weights = to_device(initial_weights(graph, 7), kGpu);
  at::Tensor x = at::randn({2, 3, 32, 32}, kGpu);
  x[1][2][3][4] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(first_non_finite(graph, weights, x), "node 'input'");
}

}  // namespace
}  // namespace octet
