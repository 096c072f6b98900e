#include "src/onnx/curves.h"

#include <charconv>
#include <numbers>
#include <system_error>

namespace octet {
namespace {

std::string hard_sigmoid(OnnxWriter& writer, const std::string& name, const std::string& x) {
  const std::string y = writer.node("HardSigmoid", name, {x});
  writer.real_attribute("alpha", 1.0 / 6);
  writer.real_attribute("beta", 0.5);
  return y;
}

/// x / 2 * (1 + erf(x / sqrt(2)))
std::string gelu(OnnxWriter& writer, const std::string& name, const std::string& x) {
  const auto times = [&](const std::string& stem, const std::string& a, double b) {
    return writer.node("Mul", stem, {a, writer.scalar(stem + "/factor", static_cast<float>(b))});
  };
  const std::string erf = writer.node("Erf", name + "/Erf", {times(name + "/scaled", x, 1 / std::numbers::sqrt2)});
  const std::string gate = writer.node("Add", name + "/Add", {erf, writer.scalar(name + "/one", 1)});
  return writer.node("Mul", name, {times(name + "/half", x, 0.5), gate});
}

}  // namespace

std::optional<Curve> read_curve(const std::string& text) {
  const size_t space = text.find(' ');
  const std::optional<Function> function = find_function(text.substr(0, space));
  if (!function) return std::nullopt;
  Curve curve{*function};
  if (*function != Function::leaky_relu) return space == std::string::npos ? std::optional(curve) : std::nullopt;
  if (space == std::string::npos) return std::nullopt;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + space + 1, end, curve.slope);
  return error == std::errc() && stop == end ? std::optional(curve) : std::nullopt;
}

std::string write_curve(OnnxWriter& writer, const Curve& curve, const std::string& name, const std::string& x) {
  switch (curve.function) {
    case Function::silu:
      return writer.node("Mul", name, {x, writer.node("Sigmoid", name + "/Sigmoid", {x})});
    case Function::hard_swish:
      if (writer.opset() >= 14) return writer.node("HardSwish", name, {x});
      return writer.node("Mul", name, {x, hard_sigmoid(writer, name + "/HardSigmoid", x)});
    case Function::hard_sigmoid:
      return hard_sigmoid(writer, name, x);
    case Function::sigmoid:
      return writer.node("Sigmoid", name, {x});
    case Function::tanh:
      return writer.node("Tanh", name, {x});
    case Function::gelu:
      return writer.opset() >= 20 ? writer.node("Gelu", name, {x}) : gelu(writer, name, x);
    case Function::leaky_relu: {
      const std::string y = writer.node("LeakyRelu", name, {x});
      writer.real_attribute("alpha", curve.slope);
      return y;
    }
  }
  return x;
}

}  // namespace octet
