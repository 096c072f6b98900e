// What the model zoo is written with: each call appends a node and returns its index.
#pragma once

#include <string>
#include <vector>

#include "src/graph/graph.h"

namespace octet {

struct ConvSpec {
  int out_channels = 0;
  int kernel = 1;
  int stride = 1;
  int pad = 0;
  int groups = 1;
  bool bias = false;
};

class GraphBuilder {
 public:
  /// folded: conv_bn gives a convolution with bias and no batch_norm. epsilon: of all BatchNorms.
  GraphBuilder(std::string name, const Shape& input, bool folded, double epsilon = kBatchNormEpsilon);

  int input() const { return 0; }
  int conv(const std::string& name, int x, const ConvSpec& spec);
  int conv_bn(const std::string& conv_name, const std::string& bn_name, int x, const ConvSpec& spec);
  int linear(const std::string& name, int x, int out_channels);
  int max_pool(const std::string& name, int x, const Window& window);
  int subsample_pad(const std::string& name, int x, int out_channels, int stride);
  int slice(const std::string& name, int x, int first_channel, int channels);
  int resize(const std::string& name, int x, int factor);
  int channel_shuffle(const std::string& name, int x, int groups);
  int dropout(const std::string& name, int x, double probability);  ///< x itself for probability 0
  int unary(Op op, const std::string& name, int x);                 ///< relu, relu6, global_avg_pool, flatten
  int lookup(Function function, const std::string& name, int x);
  int join(Op op, const std::string& name, std::vector<int> inputs);  ///< add, mul, concat

  /// The finished graph with shapes; ends building.
  Graph finish();

 private:
  int append(Node node);

  Graph graph_;
  bool folded_;
  double epsilon_;
};

/// A square window.
Window square(int kernel, int stride, int pad);

/// channels * width, rounded to the nearest multiple of 8 but not more than 10 % down (Sandler et al. 2018, as in
/// torchvision's _make_divisible).
int scaled_channels(int channels, double width);

}  // namespace octet
