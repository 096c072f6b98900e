// The steps that learn a rounding: what differs from one to the next, and Adam.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace octet {

struct StepPlan {
  int steps = 10000;    ///< of Adam
  int batch_size = 32;  ///< pictures a step
  uint64_t seed = 1;
  double rate = 1e-2;  ///< of Adam
  double drop = 0;     ///< blocks: share of activations that steps leave as they are before quantization (drop.h)
  bool tf32 = false;   ///< steps on a GPU round to it (tensor_float32.h); errors are measured without
};

/// Row after row of a table where the pictures are, so that a step does the same launches each time and can be recorded
/// (src/model/step_graph.h). The table holds some steps and is written anew when they are done.
class Steps {
 public:
  Steps(const StepPlan& plan, int64_t pictures, at::Device device);

  struct Row {
    at::Tensor pictures;  ///< int64 [batch_size], drawn on the CPU: the same on every device
    /// Float, of no dimensions. push: the regularizer's weight, 0 in the first fifth, while its power stays at 20; then
    /// that falls to 2 along half a cosine.
    at::Tensor power, push;
  };
  void prepare(int step);  ///< before each, in order; copies to the device now and then
  Row next();              ///< launches only

 private:
  StepPlan plan_;
  int64_t pictures_;
  at::Generator random_;
  at::Tensor chosen_, numbers_;  // int64 [rows, batch], float [rows, 2]
  at::Tensor row_;               // int64 [1]
};

/// Kingma and Ba, arXiv 1412.6980, algorithm 1; launches only.
class Adam {
 public:
  explicit Adam(std::vector<at::Tensor> values);
  /// rate: of no dimensions, as learning_rate() makes it.
  void step(const std::vector<at::Tensor>& gradients, const at::Tensor& rate);

 private:
  std::vector<at::Tensor> values_, means_, squares_, steps_;
};

/// A rate that Adam reads where its values are: a double on the CPU, a float on the GPU.
at::Tensor learning_rate(double rate, at::Device device);

}  // namespace octet
