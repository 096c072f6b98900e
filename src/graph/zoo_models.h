// The families of the model zoo; build_model has checked the ModelSpec before it calls one of them.
#pragma once

#include "src/graph/graph_builder.h"
#include "src/graph/zoo.h"

namespace octet::zoo {

/// The "cifar" stem keeps the resolution of small images; the "imagenet" stem divides it by 4.
bool small_stem(const ModelSpec& spec);

/// torchvision's end of mobile networks: pooled, dropout, one linear layer "classifier.1".
Graph pooled_classifier(GraphBuilder& b, int x, const ModelSpec& spec);

Graph small_cnn(const ModelSpec& spec);
Graph cifar_resnet(const ModelSpec& spec, int depth);  ///< He et al. 2015, section 4.2: depth = 6n + 2
Graph resnet(const ModelSpec& spec, int depth);        ///< 18, 34, 50
Graph mobilenet_v2(const ModelSpec& spec);
Graph shufflenet_v2(const ModelSpec& spec, int first_channels);  ///< of the first stage: 48 (x0.5), 116 (x1.0)
Graph squeezenet1_1(const ModelSpec& spec);
Graph efficientnet_b0(const ModelSpec& spec);
Graph mobilenet_v3_large(const ModelSpec& spec);
Graph vgg_bn(const ModelSpec& spec, int depth);  ///< 11, 16
Graph unet(const ModelSpec& spec, int depth);    ///< halvings of the picture, at least 1
Graph custom(const ModelSpec& spec);             ///< model.graph of a recipe

}  // namespace octet::zoo
