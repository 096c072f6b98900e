// SPDX-License-Identifier: Apache-2.0
// The model zoo: networks by name. Parameters are named as in torchvision (CIFAR ResNets as in
// akamaster/pytorch_resnet_cifar10, YOLOX in Megvii-BaseDetection/YOLOX).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/net/graph.h"

namespace octet {

/// One node of a graph that a recipe writes in model.graph.
struct NodeSpec {
  std::string name, op;
  std::vector<std::string> inputs;           ///< names of earlier nodes; empty: the node before
  std::map<std::string, double> attributes;  ///< out_channels, kernel, stride, pad, dilation, groups, bias, dropout,
                                             ///< slope, epsilon
};

struct ModelSpec {
  std::string name;  ///< one of model_names(), or "graph"
  Shape input{3, 32, 32};
  int classes = 10;
  char shortcut = 'B';        ///< CIFAR ResNets: 'A' subsample_pad, 'B' 1x1 convolution
  double width = 1.0;         ///< MobileNetV2, small_cnn, ResNet-9, U-Net: factor of the channels
  std::string stem = "auto";  ///< "imagenet": 7x7/2 and max-pool; "cifar": 3x3/1; "auto": cifar below 64 pixels
  bool folded = false;        ///< convolutions with bias and no batch_norm nodes
  double dropout = 0.0;
  std::vector<NodeSpec> graph;       ///< the nodes, for name == "graph"
  std::vector<std::string> outputs;  ///< names of the output nodes of `graph`; empty: the last, which gives the classes
};

/// Returns the names of the networks: small_cnn, resnet8/20/32/44/56 (CIFAR), resnet9/18/34/50, mobilenet_v2,
/// mobilenet_v3_large, efficientnet_b0, shufflenet_v2_x0_5, shufflenet_v2_x1_0, vgg11_bn, vgg16_bn, squeezenet1_1, and
/// for classes of pixels unet (4 halvings), unet2, unet3, lraspp_mobilenet_v2, lraspp_mobilenet_v3_large,
/// and for boxes yolox_nano, yolox_tiny, yolox_s.
const std::vector<std::string_view>& model_names();

/// Returns the operators that a node of model.graph may name: all except the input and those that only octet inserts,
/// and all functions.
const std::vector<std::string_view>& written_ops();

/// Builds a network with its shapes. Throws Error(usage), for an unknown name with the nearest known one.
Graph build_model(const ModelSpec& spec);

}  // namespace octet
