#include "src/onnx/rules.h"

namespace octet {

const std::map<std::string_view, Rule>& rules() {
  using namespace onnx_rules;
  static const std::map<std::string_view, Rule> kRules = {
      {"Add", add},
      {"AveragePool", average_pool},
      {"BatchNormalization", batch_normalization},
      {"Cast", cast},
      {"Clip", clip},
      {"Concat", concat},
      {"Constant", constant},
      {"ConstantOfShape", constant_of_shape},
      {"Conv", conv},
      {"ConvTranspose", conv_transpose},
      {"DepthToSpace", depth_to_space},
      {"DequantizeLinear", dequantize_linear},
      {"Div", div},
      {"Dropout", dropout},
      {"Erf", erf},
      {"Flatten", flatten},
      {"Gather", gather},
      {"Gelu", gelu},
      {"Gemm", gemm},
      {"GlobalAveragePool", global_average_pool},
      {"HardSigmoid", hard_sigmoid},
      {"HardSwish", hard_swish},
      {"Identity", identity},
      {"LeakyRelu", leaky_relu},
      {"MatMul", mat_mul},
      {"MaxPool", max_pool},
      {"Mul", mul},
      {"Pad", pad},
      {"QuantizeLinear", quantize_linear},
      {"ReduceMean", reduce_mean},
      {"Relu", relu},
      {"Reshape", reshape},
      {"Resize", resize},
      {"Shape", shape},
      {"Sigmoid", sigmoid},
      {"Slice", slice},
      {"Softmax", softmax},
      {"Split", split},
      {"Squeeze", squeeze},
      {"Sub", arithmetic},
      {"Tanh", tanh},
      {"Transpose", transpose},
      {"Unsqueeze", unsqueeze},
  };
  return kRules;
}

}  // namespace octet
