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
  bool operator==(const NodeSpec&) const = default;
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

// What the zoo is written with: the builder of graphs, and the families of networks that zoo.cpp chooses from.

struct ConvSpec {
  int out_channels = 0;
  int kernel = 1;
  int stride = 1;
  int pad = 0;
  int groups = 1;
  bool bias = false;
  int dilation = 1;
};

/// Builds a graph node by node. Each function appends a node called `name` that reads node `x`, and returns its index.
class GraphBuilder {
 public:
  /// folded: conv_bn() gives a convolution with bias and no batch_norm. epsilon: of every batch_norm.
  GraphBuilder(std::string name, const Shape& input, bool folded, double epsilon = kBatchNormEpsilon);

  int input() const { return 0; }
  int conv(const std::string& name, int x, const ConvSpec& spec);
  int conv_bn(const std::string& conv_name, const std::string& bn_name, int x, const ConvSpec& spec);
  int linear(const std::string& name, int x, int out_channels);
  int max_pool(const std::string& name, int x, const Window& window);
  int avg_pool(const std::string& name, int x, const Window& window);  ///< padding counts
  int subsample_pad(const std::string& name, int x, int out_channels, int stride);
  int slice(const std::string& name, int x, int first_channel, int channels);
  int resize(const std::string& name, int x, int factor, Op op = Op::resize);  ///< or resize_bilinear
  int channel_shuffle(const std::string& name, int x, int groups);
  int dropout(const std::string& name, int x, double probability);  ///< for probability 0 no node, but x
  int unary(Op op, const std::string& name, int x);                 ///< relu, relu6, global_avg_pool, flatten
  int lookup(FunctionKind function, const std::string& name, int x);
  int join(Op op, const std::string& name, std::vector<int> inputs);  ///< add, mul, concat

  /// Returns the graph with its shapes. The builder is then empty. outputs: nodes; none: the last one.
  Graph finish(std::vector<int> outputs = {});

 private:
  int append(Node node);

  Graph graph_;
  bool folded_;
  double epsilon_;
};

/// Returns a window that is equal along both axes.
Window square(int kernel, int stride, int pad);

/// Returns channels * width, rounded to the nearest multiple of 8 but down by at most 10 % (Sandler et al. 2018, as
/// torchvision's _make_divisible).
int scaled_channels(int channels, double width);

}  // namespace octet

namespace octet::zoo {

// Each function builds a network of its family from a ModelSpec that build_model() has checked.

/// Whether the network begins with the "cifar" stem, which keeps the resolution of small images. The "imagenet" stem
/// divides it by 4.
bool small_stem(const ModelSpec& spec);

/// What a network of segmentation takes from those for classes: values of stride 8 and the last ones, of
/// stride 16, where the strides of 32 are dilations of 2 (Chen et al. 2017, Rethinking atrous convolution).
struct DenseFeatures {
  int low = 0, high = 0;
};

/// Appends the head of LR-ASPP (Howard et al. 2019, section 6.4), named as in torchvision, and returns the graph, whose
/// logits have the size of the input. The sides of the input must be multiples of 16.
Graph lraspp(GraphBuilder& b, const DenseFeatures& features, const ModelSpec& spec);

/// What the last nodes of a classifier are called.
struct ClassifierNames {
  const char *linear, *dropout = "dropout", *pool = "avgpool";
};

/// Appends a global pool, dropout and a linear layer, and returns the graph.
Graph pooled_classifier(GraphBuilder& b, int x, const ModelSpec& spec, const ClassifierNames& names);

Graph small_cnn(const ModelSpec& spec);
Graph cifar_resnet(const ModelSpec& spec, int depth);  ///< depth 6n + 2 (He et al. 2015, section 4.2)
Graph resnet(const ModelSpec& spec, int depth);        ///< depth 18, 34 or 50
Graph resnet9(const ModelSpec& spec);
Graph mobilenet_v2(const ModelSpec& spec);
Graph shufflenet_v2(const ModelSpec& spec, int first_channels);  ///< 48 (x0.5) or 116 (x1.0)
Graph squeezenet1_1(const ModelSpec& spec);
Graph efficientnet_b0(const ModelSpec& spec);
Graph mobilenet_v3_large(const ModelSpec& spec);
Graph lraspp_mobilenet_v2(const ModelSpec& spec);
Graph lraspp_mobilenet_v3_large(const ModelSpec& spec);
Graph vgg_bn(const ModelSpec& spec, int depth);  ///< depth 11 or 16
Graph unet(const ModelSpec& spec, int depth);    ///< depth: how often the image is halved, at least 1

struct YoloxSize {
  double depth = 1, width = 1;  ///< factors of the number of blocks and channels of YOLOX-L
  bool depthwise = false;       ///< whether 3x3 convolutions are by channels, with one of 1x1 behind each
};
Graph yolox(const ModelSpec& spec, const YoloxSize& size);

Graph custom(const ModelSpec& spec);  ///< the graph that a recipe writes in model.graph

}  // namespace octet::zoo
