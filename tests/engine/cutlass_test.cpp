// SPDX-License-Identifier: Apache-2.0
// The cutlass engine against the reference: every tile on random convolutions, networks with a fallback; what it
// refuses, with and without CUTLASS in the build.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "kernels/core/cuda.h"
#include "src/base/error.h"
#include "src/cuda/memory.h"
#include "src/engine/engine.h"
#include "src/engine/peers/operations.h"
#include "src/engine/peers/peer.h"
#include "src/engine/support.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "tests/engine/cudnn_networks.h"
#include "tests/engine/random_network.h"

namespace octet::test {
namespace {

#define OCTET_NEEDS_CUTLASS() \
  if (const Support cutlass = find_engine("cutlass").available(); !cutlass.ok) GTEST_SKIP() << cutlass.reason

const CompileOptions kMixed{.max_batch = 2, .fallback = "cuda"};

/// A convolution whose channels are multiples of 16, with its tensors; what it writes starts as `poison`.
struct RandomConvolution {
  static constexpr uint8_t kPoison = 0x5a;

  explicit RandomConvolution(uint64_t seed) {
    Random random(seed);
    kernels::Conv2dShape& s = spec.shape;
    spec.images = random.between(1, 5);
    s.in_c = s.in_stride = 16 * random.between(1, 20);
    s.out_c = s.out_stride = s.residual_stride = 16 * random.between(1, 20);
    s.in_h = random.between(1, 17), s.in_w = random.between(1, 17);
    s.kernel_h = random.pick({1, 1, 1, 3, 5}), s.kernel_w = random.pick({1, s.kernel_h, s.kernel_h});
    if (s.kernel_h > 1) s.pad_h = random.between(0, s.kernel_h / 2), s.dilation_h = random.between(1, 2);
    if (s.kernel_w > 1) s.pad_w = random.between(0, s.kernel_w / 2), s.dilation_w = random.between(1, 2);
    if (random.chance(40)) s.stride_h = random.between(1, 3), s.stride_w = random.between(1, 3);
    s.in_h = std::max(s.in_h, (s.kernel_h - 1) * s.dilation_h + 1);
    s.in_w = std::max(s.in_w, (s.kernel_w - 1) * s.dilation_w + 1);
    s.out_h = (s.in_h + 2 * s.pad_h - (s.kernel_h - 1) * s.dilation_h - 1) / s.stride_h + 1;
    s.out_w = (s.in_w + 2 * s.pad_w - (s.kernel_w - 1) * s.dilation_w - 1) / s.stride_w + 1;
    spec.residual = random.chance(50);
    spec.clamp_min = random.pick({-128, 0, -7}), spec.clamp_max = random.pick({127, 90});
    const bool far = random.chance(50);
    const auto codes = [&](size_t count, int lowest = -128) {
      std::vector<int8_t> values(count);
      for (int8_t& value : values) value = static_cast<int8_t>(random.between(lowest, 127));
      return values;
    };
    const size_t taps = static_cast<size_t>(s.kernel_h) * s.kernel_w * s.in_c;
    x = codes(static_cast<size_t>(spec.images) * s.in_h * s.in_w * s.in_c, far ? 64 : -128);
    weight = codes(s.out_c * taps, far ? 64 : -128);
    y_bytes = static_cast<size_t>(spec.images) * s.out_h * s.out_w * s.out_c;
    residual = codes(spec.residual ? y_bytes : 0);
    // Far: sums of about 95.5^2 * taps, give or take 2500 * sqrt(taps), which the bias brings back: the product with
    // the multiplier is so much larger than the result that its rounding, where there is no fma, shows in the codes.
    const double mean = 95.5 * 95.5 * static_cast<double>(taps), spread = 2500 * std::sqrt(static_cast<double>(taps));
    for (int k = 0; far && k < s.out_c; ++k) {
      multiplier.push_back(static_cast<float>(random.uniform(20, 60) / spread));
      bias.push_back(static_cast<float>(random.uniform(-50, 50) - mean * multiplier.back()));
    }
    for (int k = 0; !far && k < s.out_c; ++k) {
      // Powers of two give ties between two codes; sums are of about 5000 * sqrt(taps).
      multiplier.push_back(random.chance(50) ? 0x1p-12f : static_cast<float>(random.between(1, 1000)) * 1e-6f);
      bias.push_back(static_cast<float>(random.between(-200, 200)) * (random.chance(50) ? 0.5f : 0.37f));
    }
    residual_multiplier = random.chance(50) ? 0.5f : 0.83f;
  }

  std::vector<uint8_t> expected() const {
    const kernels::Conv2dShape& s = spec.shape;
    kernels::Conv2dParams params;
    params.x.is_signed = params.residual.is_signed = params.y.is_signed = true;
    params.y.clamp_min = spec.clamp_min, params.y.clamp_max = spec.clamp_max;
    params.has_residual = spec.residual, params.residual_multiplier = residual_multiplier;
    std::vector<uint8_t> y(y_bytes);
    for (int image = 0; image < spec.images; ++image) {
      const size_t out = y_bytes / spec.images * image;
      kernels::conv2d_int8_reference(s, params, {weight.data(), multiplier.data(), bias.data()},
                                     x.data() + x.size() / spec.images * image,
                                     spec.residual ? residual.data() + out : nullptr, y.data() + out);
    }
    return y;
  }

  FusedConvSpec spec;
  std::vector<int8_t> x, weight, residual;
  std::vector<float> multiplier, bias;
  float residual_multiplier = 0;
  size_t y_bytes = 0;
};

DeviceBuffer on_device(const std::vector<int8_t>& values, const Stream& stream) {
  DeviceBuffer buffer(std::max<size_t>(values.size(), 1), "a test's tensor");
  if (!values.empty()) copy_to_device(buffer.data(), values.data(), values.size(), stream.get());
  stream.wait("uploading a test's tensor");
  return buffer;
}

/// What a tile writes, with the bytes behind it.
std::vector<uint8_t> run(const CutlassKernel& kernel, const RandomConvolution& conv, size_t guard) {
  const Stream stream;
  const PeerConstants constants(conv.spec.shape, {conv.weight.data(), conv.multiplier.data(), conv.bias.data()},
                                conv.residual_multiplier, conv.spec.shape.in_c, conv.spec.shape.out_c, stream);
  const DeviceBuffer x = on_device(conv.x, stream), residual = on_device(conv.residual, stream);
  const DeviceBuffer y(conv.y_bytes + guard, "a test's output");
  fill_device(y.data(), RandomConvolution::kPoison, y.bytes(), stream.get());
  kernel.launch(conv.spec,
                {.x = x.data(),
                 .weight = constants.weight(),
                 .multiplier = constants.multiplier(),
                 .bias = constants.bias(),
                 .residual = conv.spec.residual ? residual.data() : nullptr,
                 .residual_multiplier = constants.residual_multiplier(),
                 .y = y.data()},
                stream.get());
  std::vector<uint8_t> bytes(y.bytes());
  copy_to_host(bytes.data(), y.data(), bytes.size(), stream.get());
  stream.wait(kernel.name.c_str());
  return bytes;
}

bool takes(const CutlassKernel& kernel, const kernels::Conv2dShape& s) {
  return !kernel.gemm || (s.kernel_h * s.kernel_w * s.stride_h * s.stride_w == 1 && s.pad_h + s.pad_w == 0);
}

TEST(Cutlass, EveryTileGivesTheReferencesBytes) {
  OCTET_NEEDS_CUTLASS();
  constexpr size_t kGuard = 4096;
  std::map<std::string, int> runs;
  long codes = 0, differing = 0;
  for (const uint64_t seed : test_seeds(1, network_count(200))) {
    SCOPED_TRACE("OCTET_TEST_SEED=" + std::to_string(seed));
    const RandomConvolution conv(seed);
    const std::vector<uint8_t> expected = conv.expected();
    for (const CutlassKernel& kernel : cutlass_kernels()) {
      if (!takes(kernel, conv.spec.shape)) continue;
      SCOPED_TRACE(kernel.name);
      const std::vector<uint8_t> bytes = run(kernel, conv, kGuard);
      long wrong = 0;
      for (size_t i = 0; i < expected.size(); ++i) wrong += bytes[i] != expected[i];
      EXPECT_EQ(wrong, 0) << "of " << expected.size();
      EXPECT_TRUE(std::all_of(bytes.begin() + static_cast<long>(expected.size()), bytes.end(), [](uint8_t byte) {
        return byte == RandomConvolution::kPoison;
      })) << "it wrote behind its output";
      ++runs[kernel.name];
      codes += static_cast<long>(expected.size());
      differing += wrong;
    }
  }
  for (const auto& [name, count] : runs) std::printf("%s: %d convolutions\n", name.c_str(), count);
  std::printf("%ld of %ld codes differ\n", differing, codes);
  EXPECT_EQ(runs.size(), cutlass_kernels().size()) << "a tile ran no convolution";
}

TEST(Cutlass, LayersOfRandomNetworksAndOfTheZooAreEqual) {
  OCTET_NEEDS_CUTLASS();
  std::vector<Int8Graph> graphs = {zoo_network("resnet18", 64, 1), zoo_network("resnet50", 64, 1)};
  for (const uint64_t seed : test_seeds(1, 8)) graphs.push_back(residual_network(seed));
  for (const Int8Graph& graph : graphs) EXPECT_EQ(run_peer("cutlass", kMixed, graph, 1).found.differing, 0);
}

TEST(Cutlass, ReportSaysWhichEngineRanWhat) {
  OCTET_NEEDS_CUTLASS();
  const Int8Graph graph = residual_network(1);
  const std::vector<LayerInfo> layers = find_engine("cutlass").compile(graph, kMixed)->layers();
  ASSERT_EQ(layers.size(), graph.nodes.size());
  for (size_t node = 0; node < layers.size(); ++node) {
    const bool own = graph.nodes[node].op == Int8Op::conv2d;
    EXPECT_EQ(layers[node].kernel.starts_with("cutlass_"), own) << layers[node].kernel;
    EXPECT_EQ(layers[node].engine, own ? "cutlass" : "cuda");
  }
}

TEST(Cutlass, RefusesWithoutAFallbackAndNamesTheNode) {
  OCTET_NEEDS_CUTLASS();
  expect_needs_fallback("cutlass");
}

TEST(Cutlass, UnknownOptionsAreRefused) { expect_refuses_unknown_options("cutlass"); }

TEST(Cutlass, ABuildWithoutItSaysHowToGetIt) {
  if (!cutlass_kernels().empty()) GTEST_SKIP() << "this build has CUTLASS";
  const Support support = find_engine("cutlass").available();
  EXPECT_FALSE(support.ok);
  EXPECT_EQ(support.reason, "built without CUTLASS: configure with -DOCTET_CUTLASS=ON (src/engine/README.md)");
  try {
    find_engine("cutlass").compile(residual_network(1), kMixed);
    FAIL() << "compiled without kernels";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(support.reason), std::string::npos) << error.what();
  }
}

/// Returns why cutlass refuses layer1.0.conv1 of ResNet-18 after a change.
std::string reason_when(const std::function<void(Int8Node&)>& change) {
  Int8Graph graph = zoo_network("resnet18", 64, 1);
  for (Int8Node& node : graph.nodes) {
    if (node.name == "layer1.0.conv1") change(node);
  }
  return reason("cutlass", graph, "layer1.0.conv1");
}

TEST(Cutlass, SupportsNamesReasons) {
  const Int8Graph symmetric = zoo_network("resnet18", 64, 1);
  EXPECT_EQ(reason("cutlass", symmetric, "conv1"),
            "C=3: CUTLASS's kernels load and store multiples of 16 bytes a pixel");
  EXPECT_EQ(reason("cutlass", symmetric, "layer1.0.conv1"), "");
  EXPECT_EQ(reason("cutlass", symmetric, "layer1.0.conv2"), "");
  EXPECT_EQ(reason("cutlass", symmetric, "fc"), "float logits: not built here");
  EXPECT_EQ(reason("cutlass", symmetric, "maxpool"), "max_pool: CUTLASS runs conv2d and linear here");
  for (const auto scheme : {ActivationScheme::unsigned_u8, ActivationScheme::affine_u8}) {
    const ModelSpec spec{.name = "resnet18", .input = {3, 64, 64}};
    EXPECT_NE(reason("cutlass", random_int8_graph(build_model(spec), {.activation = scheme}, 1), "layer1.0.conv1")
                  .find("its input has uint8 codes"),
              std::string::npos);
  }
  EXPECT_NE(reason_when([](Int8Node& n) { n.groups = 2; }).find("groups=2"), std::string::npos);
  EXPECT_NE(reason_when([](Int8Node& n) { n.out.zero_point = 3; }).find("its output has zero point 3"),
            std::string::npos);
  EXPECT_NE(reason_when([](Int8Node& n) { n.window.pad.bottom += 1; }).find("another padding"), std::string::npos);
  EXPECT_NE(reason_when([](Int8Node& n) { n.window.stride_w = 9; }).find("stride 9"), std::string::npos);
  EXPECT_NE(reason_when([](Int8Node& n) { n.window.dilation_h = 100; }).find("reaches 200 pixels"), std::string::npos);
}

}  // namespace
}  // namespace octet::test
