// The model zoo: names to Graphs, parameter names as in torchvision (CIFAR ResNets as in
// akamaster/pytorch_resnet_cifar10).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/graph/graph.h"

namespace octet {

/// One node of a graph written in the recipe (model.graph). `inputs` empty: the node before.
struct NodeSpec {
  std::string name, op;
  std::vector<std::string> inputs;
  std::map<std::string, double> attributes;  ///< out_channels, kernel, stride, pad, dilation, groups, bias, dropout,
                                             ///< slope, epsilon
};

struct ModelSpec {
  std::string name;  ///< one of model_names(), or "graph"
  Shape input{3, 32, 32};
  int classes = 10;
  char shortcut = 'B';        ///< CIFAR ResNets: 'A' subsample_pad, 'B' 1x1 convolution
  double width = 1.0;         ///< MobileNetV2, small_cnn, U-Net: channel multiplier
  std::string stem = "auto";  ///< "imagenet" 7x7/2 + max-pool, "cifar" 3x3/1; auto: by input size (< 64 pixels: cifar)
  bool folded = false;        ///< BatchNorm already folded: convolutions with bias, no batch_norm nodes
  double dropout = 0.0;
  std::vector<NodeSpec> graph;       ///< for name == "graph"
  std::vector<std::string> outputs;  ///< of it: names of nodes; empty: the last, which gives the classes
};

/// small_cnn, resnet8/20/32/44/56 (CIFAR), resnet18/34/50, mobilenet_v2, mobilenet_v3_large, efficientnet_b0,
/// shufflenet_v2_x0_5, shufflenet_v2_x1_0, vgg11_bn, vgg16_bn, squeezenet1_1, unet (4 halvings), unet2, unet3:
/// classes of pixels.
const std::vector<std::string_view>& model_names();

/// What a node of a written graph may name: operators but the input, which is made, and what only passes make;
/// functions.
const std::vector<std::string_view>& written_ops();

/// Builds and infer_shapes()es the graph. Throws Error(usage) naming the nearest model for an unknown one.
Graph build_model(const ModelSpec& spec);

}  // namespace octet
