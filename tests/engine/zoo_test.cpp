// SPDX-License-Identifier: Apache-2.0
// Whole networks of the zoo with random weights: every cpu path gives the reference's bytes at every node.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "tests/engine/cuda_zoo_cases.h"
#include "tests/engine/random_network.h"
#include "tests/engine/same_bytes.h"

namespace octet::test {
namespace {

const std::vector<ActivationScheme> kAllSchemes = {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8,
                                                   ActivationScheme::affine_u8};
const std::vector<ActivationScheme> kOneScheme = {ActivationScheme::affine_u8};

struct ZooCase {
  const char* model;
  int size = 32;
  double width = 1;
  char shortcut = 'B';
  std::vector<ActivationScheme> schemes = kOneScheme;
};

class Zoo : public testing::TestWithParam<ZooCase> {};

TEST_P(Zoo, SameBytesOnAllPaths) {
  const ModelSpec model{.name = GetParam().model,
                        .input = {3, GetParam().size, GetParam().size},
                        .classes = 10,
                        .shortcut = GetParam().shortcut,
                        .width = GetParam().width};
  const Graph network = build_model(model);
  uint64_t seed = 1;
  for (const ActivationScheme scheme : GetParam().schemes) {
    const Int8Graph graph = random_int8_graph(network, {.activation = scheme}, ++seed);
    EXPECT_EQ(cpu_difference(graph, random_images(graph, 2, seed), 2), "") << "scheme " << static_cast<int>(scheme);
  }
}

const std::vector<ZooCase> kCases = {{"small_cnn", 28, 1, 'B', kAllSchemes},
                                     {"resnet8", 32, 1, 'B', kAllSchemes},
                                     {"resnet20", 32, 1, 'A', kAllSchemes},
                                     {"mobilenet_v2", 64, 0.35, 'B', kAllSchemes},
                                     {"squeezenet1_1", 64, 1, 'B', kAllSchemes},
                                     {"efficientnet_b0", 64, 1, 'B', kAllSchemes},
                                     {"mobilenet_v3_large", 64, 1, 'B', kAllSchemes},
                                     {"shufflenet_v2_x0_5", 64, 1, 'B', kAllSchemes},
                                     {"vgg11_bn", 32, 1, 'B', kAllSchemes},
                                     {"unet3", 64, 0.25, 'B', kAllSchemes},
                                     {"lraspp_mobilenet_v2", 64, 0.35, 'B', kAllSchemes},
                                     {"lraspp_mobilenet_v3_large", 64, 1, 'B', kAllSchemes},
                                     {"yolox_nano", 64, 1, 'B', kAllSchemes},
                                     {"yolox_tiny", 64},
                                     {"yolox_s", 64},
                                     {"resnet32"},
                                     {"resnet44"},
                                     {"resnet56", 32, 1, 'A'},
                                     {"resnet9", 32, 0.5},
                                     {"resnet18"},
                                     {"resnet34"},
                                     {"resnet50"},
                                     {"shufflenet_v2_x1_0"},
                                     {"vgg16_bn"},
                                     {"unet", 32, 0.5},
                                     {"unet2", 32, 0.5}};

INSTANTIATE_TEST_SUITE_P(Models, Zoo, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.model); });

TEST(ZooCases, HoldEveryNetworkOfTheZoo) {
  std::set<std::string_view> tested;
  for (const ZooCase& zoo : kCases) tested.insert(zoo.model);
  std::set<std::string_view> tested_by_cuda;
  for (const auto* cases : {&kCudaInEveryScheme, &kCudaInOneScheme})
    for (const CudaZooCase& zoo : *cases) tested_by_cuda.insert(zoo.model);
  for (const std::string_view name : model_names()) {
    EXPECT_TRUE(tested.contains(name)) << name;
    EXPECT_TRUE(tested_by_cuda.contains(name)) << name << " in cuda_zoo_cases.h";
  }
}

}  // namespace
}  // namespace octet::test
