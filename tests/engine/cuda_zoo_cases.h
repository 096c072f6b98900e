// SPDX-License-Identifier: Apache-2.0
// The networks that cuda_zoo_test.cpp runs, without CUDA's headers: zoo_test.cpp asks, in every build, that none is
// missing.
#pragma once

#include <vector>

#include "src/net/graph.h"

namespace octet::test {

struct CudaZooCase {
  const char* model;
  Shape input;
  int classes = 10;
  char shortcut = 'B';
  bool folded = false;
};

inline const std::vector<CudaZooCase> kCudaInEveryScheme = {{"small_cnn", {1, 28, 28}},
                                                            {"resnet20", {3, 32, 32}, 10, 'A'},
                                                            {"resnet32", {3, 32, 32}, 10, 'A'},
                                                            {"resnet56", {3, 32, 32}, 10, 'A'},
                                                            {"resnet20", {3, 32, 32}},
                                                            {"resnet18", {3, 32, 32}},
                                                            {"vgg16_bn", {3, 32, 32}},
                                                            {"mobilenet_v2", {3, 32, 32}},
                                                            {"mobilenet_v3_large", {3, 32, 32}},
                                                            {"efficientnet_b0", {3, 32, 32}},
                                                            {"shufflenet_v2_x1_0", {3, 32, 32}},
                                                            {"efficientnet_b0", {3, 224, 224}, 1000},
                                                            {"resnet18", {3, 224, 224}, 1000},
                                                            {"resnet50", {3, 224, 224}, 1000},
                                                            {"mobilenet_v2", {3, 224, 224}, 1000, 'B', true},
                                                            {"squeezenet1_1", {3, 224, 224}, 1000}};
/// The rest of the zoo: layers of the same kinds.
inline const std::vector<CudaZooCase> kCudaInOneScheme = {{"resnet8", {3, 32, 32}},
                                                          {"resnet9", {3, 32, 32}},
                                                          {"resnet34", {3, 32, 32}},
                                                          {"resnet44", {3, 32, 32}, 10, 'A'},
                                                          {"vgg11_bn", {3, 32, 32}},
                                                          {"unet", {3, 32, 32}},
                                                          {"unet2", {3, 40, 36}, 2},
                                                          {"unet3", {3, 64, 64}, 4},
                                                          {"yolox_nano", {3, 96, 64}, 3},
                                                          {"yolox_tiny", {3, 96, 64}, 3},
                                                          {"yolox_s", {3, 96, 64}, 3},
                                                          {"lraspp_mobilenet_v2", {3, 64, 64}, 4},
                                                          {"lraspp_mobilenet_v3_large", {3, 64, 64}, 4},
                                                          {"shufflenet_v2_x0_5", {3, 64, 64}}};

}  // namespace octet::test
