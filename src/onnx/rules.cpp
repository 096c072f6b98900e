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
      {"Conv", conv},
      {"Div", arithmetic},
      {"Dropout", dropout},
      {"Flatten", flatten},
      {"Gather", gather},
      {"Gemm", gemm},
      {"GlobalAveragePool", global_average_pool},
      {"Identity", identity},
      {"MatMul", mat_mul},
      {"MaxPool", max_pool},
      {"Mul", arithmetic},
      {"Pad", pad},
      {"ReduceMean", reduce_mean},
      {"Relu", relu},
      {"Reshape", reshape},
      {"Shape", shape},
      {"Slice", slice},
      {"Softmax", softmax},
      {"Squeeze", squeeze},
      {"Sub", arithmetic},
      {"Transpose", transpose},
      {"Unsqueeze", unsqueeze},
  };
  return kRules;
}

}  // namespace octet
