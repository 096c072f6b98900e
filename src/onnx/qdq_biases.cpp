#include "src/onnx/qdq_biases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace octet {
namespace {

constexpr double kMostInt32 = std::numeric_limits<int32_t>::max();
constexpr double kRoom = 1 << 30;
constexpr double kToldCodes = 0.1;

float raised_scale(double bias, double x_scale, double room) {
  return std::max(static_cast<float>(std::abs(bias) / (room * x_scale)), std::numeric_limits<float>::min());
}

/// The largest distance of a code from the zero point.
double reach(const QParams& x) {
  return std::max(std::abs(x.quant_min - x.zero_point), std::abs(x.quant_max - x.zero_point));
}

}  // namespace

int32_t int32_bias(double bias, double scale) {
  const double code = std::nearbyint(bias / scale);
  return static_cast<int32_t>(std::clamp(code, static_cast<double>(std::numeric_limits<int32_t>::min()), kMostInt32));
}

float scale_for_bias(double bias, double x_scale) { return raised_scale(bias, x_scale, kRoom); }

void Int32Biases::fit(std::span<int8_t> codes, float& scale, float bias, const QParams& x, double y_scale) {
  double sum = 0;  // the largest magnitude that codes times the input's can add up to
  for (const int8_t code : codes) sum += std::abs(code) * reach(x);
  if (std::abs(bias / (static_cast<double>(scale) * x.scale)) + sum > kMostInt32) {
    const double before = scale;
    scale = raised_scale(bias, x.scale, std::max(std::min(kRoom, kMostInt32 - sum), kRoom / 2));
    double moved = 0;
    for (int8_t& code : codes) {
      const double weight = code * before;
      code = static_cast<int8_t>(std::nearbyint(weight / scale));
      moved += std::abs(code * static_cast<double>(scale) - weight);
    }
    moved_ = std::max(moved_, moved * reach(x) * x.scale / y_scale);
    if (raised_++ == 0) first_raised_ = channels_;
  }
  const double bias_scale = static_cast<double>(scale) * x.scale;
  const double off = std::abs(int32_bias(bias, bias_scale) * bias_scale - bias) / y_scale;
  if (off > off_) off_ = off, worst_ = channels_;
  ++channels_;
}

std::vector<std::string> Int32Biases::notes(const std::string& layer) const {
  std::vector<std::string> notes;
  if (raised_ > 0)
    notes.push_back(fmt::format(
        "{}: {} of {} channels (the first: {}) have weights so small beside their bias that it would saturate as an "
        "int32 bias, as int8 runtimes have it; their weight scales are raised, which moves an output by at most {:.2g} "
        "of a code",
        layer, raised_, channels_, first_raised_, moved_));
  if (off_ > kToldCodes)
    notes.push_back(
        fmt::format("{}: the bias of channel {} is {:.2g} of an output's code off where a runtime makes an "
                    "int32 bias of it",
                    layer, worst_, off_));
  return notes;
}

}  // namespace octet
