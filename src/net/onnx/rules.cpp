// SPDX-License-Identifier: Apache-2.0
#include "src/net/onnx/rules.h"

#include <algorithm>
#include <iterator>

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
      {"Elu", elu},
      {"Erf", erf},
      {"Flatten", flatten},
      {"Gather", gather},
      {"Gelu", gelu},
      {"Gemm", gemm},
      {"GlobalAveragePool", global_average_pool},
      {"GlobalMaxPool", global_max_pool},
      {"HardSigmoid", hard_sigmoid},
      {"HardSwish", hard_swish},
      {"Identity", identity},
      {"LeakyRelu", leaky_relu},
      {"LogSoftmax", softmax},
      {"MatMul", mat_mul},
      {"Max", extremum},
      {"MaxPool", max_pool},
      {"Min", extremum},
      {"Mish", mish},
      {"Mul", mul},
      {"Neg", neg},
      {"PRelu", prelu},
      {"Pad", pad},
      {"Pow", pow},
      {"QuantizeLinear", quantize_linear},
      {"ReduceMean", reduce_mean},
      {"Relu", relu},
      {"Reshape", reshape},
      {"Resize", resize},
      {"Shape", shape},
      {"Sigmoid", sigmoid},
      {"Slice", slice},
      {"Softmax", softmax},
      {"Softplus", softplus},
      {"SpaceToDepth", space_to_depth},
      {"Split", split},
      {"Squeeze", squeeze},
      {"Sub", sub},
      {"Sum", sum},
      {"Tanh", tanh},
      {"Transpose", transpose},
      {"Unsqueeze", unsqueeze},
      {"Upsample", resize},
  };
  return kRules;
}

std::string cure_of_other_form(std::string_view op) {
  constexpr std::string_view kDynamic[] = {"ConvInteger",           "DynamicQuantizeLSTM", "DynamicQuantizeLinear",
                                           "DynamicQuantizeMatMul", "MatMulInteger",       "MatMulIntegerToFloat"};
  if (std::find(std::begin(kDynamic), std::end(kDynamic), op) != std::end(kDynamic))
    return std::string(
               "a dynamically quantized network, whose scales follow from each image; octet's are constants: ") +
           kQuantizeByOnnxRuntime;
  if (op.starts_with("QLinear") || op == "QGemm" || op == "QAttention")
    return std::string("an operator of QOperator form that octet does not read; it reads QDQ: ") +
           kQuantizeByOnnxRuntime;
  return "";
}

}  // namespace octet
