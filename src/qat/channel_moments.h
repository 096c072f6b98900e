// Mean and deviation of each channel of each layer over pictures.
#pragma once

#include <vector>

#include "src/model/model.h"
#include "src/quant/equalize.h"

namespace octet {

/// Of what the conv2d and linear nodes of a float network give before residual and activation, BatchNorm and bias
/// included. See pictures in any number of batches, then ask.
class MomentsObserver {
 public:
  MomentsObserver(const Graph& fused, const Weights& weights);
  void see(const at::Tensor& x);  ///< normalized float [N, C, H, W]
  std::vector<ChannelMoments> moments() const;

 private:
  struct Sums {
    at::Tensor values, squares;  ///< double [K], of the product; bias is added at the end
    double count = 0;
    at::Tensor bias;
  };
  const Graph& graph_;
  const Weights& weights_;
  std::vector<Sums> sums_;  // by node
};

}  // namespace octet
