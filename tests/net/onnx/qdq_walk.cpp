// SPDX-License-Identifier: Apache-2.0
#include "tests/net/onnx/qdq_walk.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "onnx.pb.h"

namespace octet::test {
namespace {

using onnx::TensorProto;

template <typename T>
std::vector<double> unpacked(const std::string& bytes) {
  std::vector<double> numbers(bytes.size() / sizeof(T));
  for (size_t i = 0; i < numbers.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    numbers[i] = static_cast<double>(value);
  }
  return numbers;
}

struct Typed : Values {
  int type = TensorProto::FLOAT;
};

Typed constant(const TensorProto& tensor) {
  Typed value;
  value.shape.assign(tensor.dims().begin(), tensor.dims().end());
  value.type = tensor.data_type();
  switch (value.type) {
    case TensorProto::FLOAT:
      value.numbers = unpacked<float>(tensor.raw_data());
      break;
    case TensorProto::INT8:
      value.numbers = unpacked<int8_t>(tensor.raw_data());
      break;
    case TensorProto::UINT8:
      value.numbers = unpacked<uint8_t>(tensor.raw_data());
      break;
    case TensorProto::INT32:
      value.numbers = unpacked<int32_t>(tensor.raw_data());
      break;
    default:
      value.numbers = unpacked<int64_t>(tensor.raw_data());
  }
  return value;
}

class Walk {
 public:
  explicit Walk(const std::string& bytes) {
    if (!model_.ParseFromString(bytes)) throw std::runtime_error("not a model");
  }

  std::map<std::string, Values> run(const Values& images, const std::map<std::string, std::vector<double>>& given) {
    known_[model_.graph().input(0).name()] = Typed{images, TensorProto::FLOAT};
    for (const TensorProto& tensor : model_.graph().initializer()) known_[tensor.name()] = constant(tensor);
    std::map<std::string, Values> found;
    for (const onnx::NodeProto& node : model_.graph().node()) {
      Typed& value = known_[node.output(0)] = compute(node);
      found[node.output(0)] = value;
      if (const auto better = given.find(node.output(0)); better != given.end()) value.numbers = better->second;
    }
    found.insert(known_.begin(), known_.end());
    return found;
  }

 private:
  const Typed& input(const onnx::NodeProto& node, int i) const { return known_.at(node.input(i)); }

  static std::vector<int64_t> ints(const onnx::NodeProto& node, const char* name, std::vector<int64_t> fallback) {
    for (const auto& a : node.attribute())
      if (a.name() == name) return {a.ints().begin(), a.ints().end()};
    return fallback;
  }
  static int64_t integer(const onnx::NodeProto& node, const char* name, int64_t fallback) {
    for (const auto& a : node.attribute())
      if (a.name() == name) return a.i();
    return fallback;
  }

  Typed compute(const onnx::NodeProto& node) const {
    const std::string& op = node.op_type();
    const Typed& x = input(node, 0);
    if (op == "QuantizeLinear" || op == "DequantizeLinear") return scaled(node, x, op == "QuantizeLinear");
    if (op == "Conv" || op == "MaxPool" || op == "AveragePool" || op == "GlobalAveragePool") return windows(node, x);
    if (op == "Gemm") return gemm(node, x);
    if (op == "Concat") return concat(node);
    if (op == "Slice") return input(node, 3).numbers.size() == 2 ? every_second(node, x) : channels(node, x);
    if (op == "Resize") return resized(node, x);
    if (op == "Pad") return padded(node, x);
    if (op == "Reshape") return reshaped(node, x);
    if (op == "Transpose") return last_two_swapped(node, x);
    if (op == "MatMul") return product(x, input(node, 1));
    if (op == "Softmax") return shares(node, x);
    if (op == "PRelu") return sloped(x, input(node, 1));
    if (op == "Add" || op == "Mul") return joined(node, x, input(node, 1));
    Typed y = x;
    if (op == "Flatten") y.shape = {x.shape[0], static_cast<int64_t>(x.numbers.size()) / x.shape[0]};
    if (op == "Unsqueeze") y.shape = {x.shape.at(0), x.shape.at(1), 1, 1};
    for (size_t i = 0; i < y.numbers.size(); ++i) {
      double& v = y.numbers[i];
      if (op == "Relu") v = std::max(v, 0.0);
      if (op == "Clip") v = std::clamp(v, input(node, 1).numbers[0], input(node, 2).numbers[0]);
      if (const auto function = functions().find(op); function != functions().end()) v = function->second(node, v);
    }
    const bool known = op == "Flatten" || op == "Unsqueeze" || op == "Relu" || op == "Clip" || functions().contains(op);
    if (!known) throw std::runtime_error("no " + op);
    return y;
  }

  using FunctionOfOne = double (*)(const onnx::NodeProto&, double);
  static double real(const onnx::NodeProto& node, const char* name) {
    for (const auto& a : node.attribute())
      if (a.name() == name) return a.f();
    throw std::runtime_error(std::string("no attribute ") + name);
  }

  /// As ONNX's specification has them.
  static const std::map<std::string, FunctionOfOne>& functions() {
    static const std::map<std::string, FunctionOfOne> kFunctions = {
        {"Sigmoid", [](const onnx::NodeProto&, double x) { return 1 / (1 + std::exp(-x)); }},
        {"Tanh", [](const onnx::NodeProto&, double x) { return std::tanh(x); }},
        {"Erf", [](const onnx::NodeProto&, double x) { return std::erf(x); }},
        {"Gelu", [](const onnx::NodeProto&, double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
        {"HardSwish", [](const onnx::NodeProto&, double x) { return x * std::max(0.0, std::min(1.0, x / 6 + 0.5)); }},
        {"HardSigmoid",
         [](const onnx::NodeProto& node, double x) {
           return std::max(0.0, std::min(1.0, real(node, "alpha") * x + real(node, "beta")));
         }},
        {"Mish", [](const onnx::NodeProto&, double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
        {"Softplus", [](const onnx::NodeProto&, double x) { return std::log1p(std::exp(x)); }},
        {"Elu", [](const onnx::NodeProto&, double x) { return x < 0 ? std::expm1(x) : x; }},
        {"LeakyRelu", [](const onnx::NodeProto& node, double x) { return x < 0 ? real(node, "alpha") * x : x; }},
    };
    return kFunctions;
  }

  /// a and b of one shape, b a number, or one dimension of b is 1 where a's is not.
  static Typed joined(const onnx::NodeProto& node, const Typed& a, const Typed& b) {
    Typed y = a;
    if (!b.shape.empty() && a.shape.size() != b.shape.size()) throw std::runtime_error("shapes of " + node.name());
    for (size_t i = 0; i < a.numbers.size(); ++i) {
      size_t rest = i, at = 0, step = 1;
      for (size_t d = b.shape.size(); d-- > 0;) {
        const auto size = static_cast<size_t>(a.shape[d]);
        if (b.shape[d] != 1 && b.shape[d] != a.shape[d]) throw std::runtime_error("shapes of " + node.name());
        if (b.shape[d] != 1) at += rest % size * step;
        rest /= size;
        step *= static_cast<size_t>(b.shape[d]);
      }
      const double other = b.numbers.at(at);
      y.numbers[i] = static_cast<float>(node.op_type() == "Mul" ? a.numbers[i] * other : a.numbers[i] + other);
    }
    return y;
  }

  /// One slope, or one for each index of the axis that is the slopes' first.
  static Typed sloped(const Typed& x, const Typed& slopes) {
    Typed y = x;
    size_t behind = 1;
    for (size_t d = x.shape.size() - slopes.shape.size() + 1; d < x.shape.size(); ++d)
      behind *= static_cast<size_t>(x.shape[d]);
    for (size_t i = 0; i < y.numbers.size(); ++i)
      if (x.numbers[i] < 0)
        y.numbers[i] = static_cast<float>(x.numbers[i] * slopes.numbers[i / behind % slopes.numbers.size()]);
    return y;
  }

  Typed scaled(const onnx::NodeProto& node, const Typed& x, bool quantize) const {
    const Typed &scale = input(node, 1), &zero = input(node, 2);
    const auto axis = static_cast<size_t>(integer(node, "axis", 1));
    size_t inner = 1;
    for (size_t d = axis + 1; d < x.shape.size(); ++d) inner *= static_cast<size_t>(x.shape[d]);
    const double low = zero.type == TensorProto::INT8 ? -128 : 0, high = zero.type == TensorProto::INT8 ? 127 : 255;
    Typed y = x;
    y.type = quantize ? zero.type : static_cast<int>(TensorProto::FLOAT);
    for (size_t i = 0; i < x.numbers.size(); ++i) {
      const size_t k = scale.numbers.size() == 1 ? 0 : i / inner % static_cast<size_t>(x.shape[axis]);
      const double s = scale.numbers.at(k), z = zero.numbers.at(k);
      y.numbers[i] = quantize ? std::clamp(std::nearbyint(static_cast<float>(x.numbers[i] / s)) + z, low, high)
                              : static_cast<float>((x.numbers[i] - z) * s);
    }
    return y;
  }

  Typed windows(const onnx::NodeProto& node, const Typed& x) const {
    const std::string& op = node.op_type();
    const bool conv = op == "Conv", largest = op == "MaxPool";
    const int64_t n = x.shape[0], c = x.shape[1], h = x.shape[2], w = x.shape[3];
    const auto kernel = ints(node, "kernel_shape", {h, w}), stride = ints(node, "strides", {1, 1});
    const auto pads = ints(node, "pads", {0, 0, 0, 0}), dilation = ints(node, "dilations", {1, 1});
    const int64_t out_c = conv ? input(node, 1).shape[0] : c, groups = conv ? integer(node, "group", 1) : c;
    const int64_t out_h = (h + pads[0] + pads[2] - dilation[0] * (kernel[0] - 1) - 1) / stride[0] + 1;
    const int64_t out_w = (w + pads[1] + pads[3] - dilation[1] * (kernel[1] - 1) - 1) / stride[1] + 1;
    Typed y{{{n, out_c, out_h, out_w}, {}}, TensorProto::FLOAT};
    for (int64_t image = 0; image < n; ++image)
      for (int64_t k = 0; k < out_c; ++k)
        for (int64_t oy = 0; oy < out_h; ++oy)
          for (int64_t ox = 0; ox < out_w; ++ox) {
            double sum = conv && node.input_size() > 2 ? input(node, 2).numbers[static_cast<size_t>(k)] : 0;
            double best = -std::numeric_limits<double>::infinity();
            const int64_t per_group = c / groups, first = k / (out_c / groups) * per_group;
            for (int64_t i = 0; i < per_group; ++i)
              for (int64_t r = 0; r < kernel[0]; ++r)
                for (int64_t s = 0; s < kernel[1]; ++s) {
                  const int64_t iy = oy * stride[0] - pads[0] + r * dilation[0];
                  const int64_t ix = ox * stride[1] - pads[1] + s * dilation[1];
                  if (iy < 0 || iy >= h || ix < 0 || ix >= w) continue;
                  const double v = x.numbers[static_cast<size_t>(((image * c + first + i) * h + iy) * w + ix)];
                  const auto at = static_cast<size_t>(((k * per_group + i) * kernel[0] + r) * kernel[1] + s);
                  sum += conv ? v * input(node, 1).numbers[at] : v;
                  best = std::max(best, v);
                }
            if (!conv) sum /= static_cast<double>(kernel[0] * kernel[1]);
            y.numbers.push_back(largest ? best : sum);
          }
    return y;
  }

  Typed gemm(const onnx::NodeProto& node, const Typed& x) const {
    const Typed& weight = input(node, 1);
    const int64_t n = x.shape.at(0), c = x.shape.at(1), k = weight.shape[0];
    if (x.shape.size() != 2 || c != weight.shape[1]) throw std::runtime_error("Gemm's sizes");
    Typed y{{{n, k}, {}}, TensorProto::FLOAT};
    for (int64_t image = 0; image < n; ++image)
      for (int64_t row = 0; row < k; ++row) {
        double sum = node.input_size() > 2 ? input(node, 2).numbers[static_cast<size_t>(row)] : 0;
        for (int64_t i = 0; i < c; ++i)
          sum += x.numbers[static_cast<size_t>(image * c + i)] * weight.numbers[static_cast<size_t>(row * c + i)];
        y.numbers.push_back(sum);
      }
    return y;
  }

  Typed concat(const onnx::NodeProto& node) const {
    Typed y = input(node, 0);
    y.shape[1] = 0;
    y.numbers.clear();
    for (int i = 0; i < node.input_size(); ++i) y.shape[1] += input(node, i).shape[1];
    for (int64_t image = 0; image < y.shape[0]; ++image)
      for (int i = 0; i < node.input_size(); ++i) {
        const Typed& part = input(node, i);
        const auto size = static_cast<int64_t>(part.numbers.size()) / part.shape[0];
        y.numbers.insert(y.numbers.end(), part.numbers.begin() + image * size,
                         part.numbers.begin() + (image + 1) * size);
      }
    return y;
  }

  Typed every_second(const onnx::NodeProto& node, const Typed& x) const {
    const auto step_h = static_cast<int64_t>(input(node, 4).numbers[0]);
    const auto step_w = static_cast<int64_t>(input(node, 4).numbers[1]);
    Typed y{{{x.shape[0], x.shape[1], (x.shape[2] + step_h - 1) / step_h, (x.shape[3] + step_w - 1) / step_w}, {}},
            x.type};
    for (int64_t plane = 0; plane < x.shape[0] * x.shape[1]; ++plane)
      for (int64_t r = 0; r < x.shape[2]; r += step_h)
        for (int64_t s = 0; s < x.shape[3]; s += step_w)
          y.numbers.push_back(x.numbers[static_cast<size_t>((plane * x.shape[2] + r) * x.shape[3] + s)]);
    return y;
  }

  Typed channels(const onnx::NodeProto& node, const Typed& x) const {
    const auto first = static_cast<int64_t>(input(node, 1).numbers[0]),
               end = static_cast<int64_t>(input(node, 2).numbers[0]);
    const int64_t plane = x.shape[2] * x.shape[3];
    Typed y{{{x.shape[0], end - first, x.shape[2], x.shape[3]}, {}}, x.type};
    for (int64_t image = 0; image < x.shape[0]; ++image) {
      const auto begin = x.numbers.begin() + image * x.shape[1] * plane;
      y.numbers.insert(y.numbers.end(), begin + first * plane, begin + end * plane);
    }
    return y;
  }

  /// Pixel i is pixel i / scale, rounded down.
  static std::string text(const onnx::NodeProto& node, const char* name) {
    for (const auto& a : node.attribute())
      if (a.name() == name) return a.s();
    return "";
  }

  /// Repeated pixels, or straight lines between their centres.
  Typed resized(const onnx::NodeProto& node, const Typed& x) const {
    const bool linear = text(node, "mode") == "linear";
    if (linear && text(node, "coordinate_transformation_mode") != "half_pixel") throw std::runtime_error("coordinates");
    const auto scale_h = static_cast<int64_t>(input(node, 2).numbers[2]),
               scale_w = static_cast<int64_t>(input(node, 2).numbers[3]);
    Typed y{{{x.shape[0], x.shape[1], x.shape[2] * scale_h, x.shape[3] * scale_w}, {}}, x.type};
    for (int64_t plane = 0; plane < x.shape[0] * x.shape[1]; ++plane) {
      const auto at = [&](int64_t row, int64_t column) {
        row = std::clamp(row, int64_t{0}, x.shape[2] - 1), column = std::clamp(column, int64_t{0}, x.shape[3] - 1);
        return x.numbers[static_cast<size_t>((plane * x.shape[2] + row) * x.shape[3] + column)];
      };
      for (int64_t r = 0; r < y.shape[2]; ++r)
        for (int64_t s = 0; s < y.shape[3]; ++s) {
          const double row = (static_cast<double>(r) + 0.5) / static_cast<double>(scale_h) - 0.5;
          const double column = (static_cast<double>(s) + 0.5) / static_cast<double>(scale_w) - 0.5;
          const auto top = static_cast<int64_t>(std::floor(row)), left = static_cast<int64_t>(std::floor(column));
          const double above = std::lerp(at(top, left), at(top, left + 1), column - std::floor(column));
          const double below = std::lerp(at(top + 1, left), at(top + 1, left + 1), column - std::floor(column));
          y.numbers.push_back(linear ? static_cast<float>(std::lerp(above, below, row - std::floor(row)))
                                     : at(r / scale_h, s / scale_w));
        }
    }
    return y;
  }

  /// Returns x with channels of zeros before and behind its own.
  Typed padded(const onnx::NodeProto& node, const Typed& x) const {
    const auto before = static_cast<int64_t>(input(node, 1).numbers[1]);
    const auto behind = static_cast<int64_t>(input(node, 1).numbers[5]);
    const int64_t plane = x.shape[2] * x.shape[3];
    Typed y = x;
    y.shape[1] += before + behind;
    y.numbers.assign(static_cast<size_t>(y.shape[0] * y.shape[1] * plane), input(node, 2).numbers[0]);
    for (int64_t image = 0; image < x.shape[0]; ++image)
      std::copy_n(x.numbers.begin() + image * x.shape[1] * plane, x.shape[1] * plane,
                  y.numbers.begin() + (image * y.shape[1] + before) * plane);
    return y;
  }

  Typed reshaped(const onnx::NodeProto& node, const Typed& x) const {
    Typed y = x;
    y.shape = {x.shape[0]};
    const Typed& to = input(node, 1);
    for (size_t i = 1; i < to.numbers.size(); ++i) y.shape.push_back(static_cast<int64_t>(to.numbers[i]));
    int64_t elements = 1;
    for (const int64_t dim : y.shape) elements *= dim;
    if (to.numbers[0] != -1 || elements != static_cast<int64_t>(x.numbers.size()))
      throw std::runtime_error("shape of " + node.name());
    return y;
  }

  static Typed last_two_swapped(const onnx::NodeProto& node, const Typed& x) {
    if (ints(node, "perm", {}) != std::vector<int64_t>{0, 1, 3, 2}) throw std::runtime_error("perm");
    const int64_t rows = x.shape[2], columns = x.shape[3];
    Typed y = x;
    std::swap(y.shape[2], y.shape[3]);
    for (size_t i = 0; i < x.numbers.size(); ++i) {
      const auto at = static_cast<int64_t>(i), matrix = at / (rows * columns), in = at % (rows * columns);
      y.numbers[static_cast<size_t>((matrix * columns + in % columns) * rows + in / columns)] = x.numbers[i];
    }
    return y;
  }

  /// Returns the matrix products of [N, heads, rows, K] and [N, heads, K, columns].
  static Typed product(const Typed& a, const Typed& b) {
    const int64_t matrices = a.shape[0] * a.shape[1], rows = a.shape[2], terms = a.shape[3], columns = b.shape[3];
    if (a.shape.size() != 4 || b.shape[1] != a.shape[1] || b.shape[2] != terms) throw std::runtime_error("MatMul");
    Typed y{{{a.shape[0], a.shape[1], rows, columns}, {}}, TensorProto::FLOAT};
    for (int64_t m = 0; m < matrices; ++m)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
          double sum = 0;
          for (int64_t k = 0; k < terms; ++k)
            sum += a.numbers[static_cast<size_t>((m * rows + r) * terms + k)] *
                   b.numbers[static_cast<size_t>((m * terms + k) * columns + c)];
          y.numbers.push_back(sum);
        }
    return y;
  }

  /// Over the third of four dimensions.
  static Typed shares(const onnx::NodeProto& node, const Typed& x) {
    if (integer(node, "axis", -1) != 2) throw std::runtime_error("axis");
    const auto size = static_cast<size_t>(x.shape[2]), inner = static_cast<size_t>(x.shape[3]);
    Typed y = x;
    for (size_t i = 0; i < x.numbers.size(); ++i) {
      const size_t first = i / (size * inner) * size * inner + i % inner;
      double sum = 0;
      for (size_t k = 0; k < size; ++k) sum += std::exp(x.numbers[first + k * inner] - x.numbers[i]);
      y.numbers[i] = 1 / sum;
    }
    return y;
  }

  onnx::ModelProto model_;
  std::map<std::string, Typed> known_;
};

}  // namespace

std::map<std::string, Values> walk_onnx(const std::string& bytes, const Values& images,
                                        const std::map<std::string, std::vector<double>>& given) {
  return Walk(bytes).run(images, given);
}

}  // namespace octet::test
