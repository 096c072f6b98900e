#include "kernels/fake_quantize/fake_quantize.h"

#include <bit>

#include "kernels/clones.h"
#include "kernels/fake_quantize/weight_scale.h"
#include "kernels/fake_quantize/widened.h"

// Built with -fno-math-errno -fno-trapping-math (kernels/CMakeLists.txt), without which rintf and the comparisons stay
// scalar. Division and rounding stay exact.

namespace octet::kernels {
namespace {

void narrow(float value, float& y) { y = value; }
void narrow(float value, uint16_t& y) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);  // finite: codes times a finite scale
  y = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/// quantize() and dequantize() of one value without leaving float: codes are small integers, so nothing changes.
template <typename T>
[[gnu::always_inline]] inline uint8_t fake_quantize_one(T x, const QParams& q, T& y) {
  const float lo = static_cast<float>(q.quant_min), hi = static_cast<float>(q.quant_max);
  const float zero_point = static_cast<float>(q.zero_point);
  const float code = rintf(widen(x) / q.scale) + zero_point;
  const float above = code > lo ? code : lo;  // NaN becomes lo, as in clamp_code
  const float clamped = above < hi ? above : hi;
  narrow(q.scale * (clamped - zero_point), y);
  return static_cast<uint8_t>(code == clamped);
}

template <typename T>
[[gnu::always_inline]] inline void forward(const T* x, size_t count, const QParams qparams, T* y, uint8_t* mask) {
  const QParams q = qparams;  // a local: stores through mask cannot change it
  if (mask != nullptr) {
    for (size_t i = 0; i < count; ++i) mask[i] = fake_quantize_one(x[i], q, y[i]);
  } else {
    for (size_t i = 0; i < count; ++i) fake_quantize_one(x[i], q, y[i]);
  }
}

template <typename T>
[[gnu::always_inline]] inline void forward_rows(const T* x, const ChannelQuantization& q, Rows rows, T* y,
                                                uint8_t* mask) {
  for (size_t row = rows.begin; row < rows.end; ++row) {
    QParams channel = q.range;
    channel.scale = q.scale[row % q.channels];
    const size_t at = row * q.inner;
    fake_quantize(x + at, q.inner, channel, y + at, mask != nullptr ? mask + at : nullptr);
  }
}

/// dy/ds of one value.
template <typename T>
[[gnu::always_inline]] inline double slope_of(T x, const QParams& q) {
  const float lo = static_cast<float>(q.quant_min), hi = static_cast<float>(q.quant_max);
  const float zero_point = static_cast<float>(q.zero_point);
  const float value = widen(x), rounded = rintf(value / q.scale), code = rounded + zero_point;
  const float above = code > lo ? code : lo;  // NaN becomes lo, as in clamp_code
  const float clamped = above < hi ? above : hi;
  const double inside = static_cast<double>(rounded) - static_cast<double>(value) / static_cast<double>(q.scale);
  return code == clamped ? inside : static_cast<double>(clamped - zero_point);
}

template <typename T>
[[gnu::always_inline]] inline double sum_of_slopes(const T* x, const T* dy, size_t count, const QParams& q) {
  constexpr size_t kLanes = 16;  // fixed partial sums, so that it vectorizes
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane)
      sums[lane] += static_cast<double>(widen(dy[i + lane])) * slope_of(x[i + lane], q);
  }
  for (; i < count; ++i) sums[i % kLanes] += static_cast<double>(widen(dy[i])) * slope_of(x[i], q);
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

OCTET_CLONES double scale_gradient(const float* x, const float* dy, size_t count, const QParams& q) {
  return sum_of_slopes(x, dy, count, q);
}

OCTET_CLONES double scale_gradient(const uint16_t* x, const uint16_t* dy, size_t count, const QParams& q) {
  return sum_of_slopes(x, dy, count, q);
}

OCTET_CLONES void fake_quantize(const float* x, size_t count, const QParams& q, float* y, uint8_t* mask) {
  forward(x, count, q, y, mask);
}

OCTET_CLONES void fake_quantize(const uint16_t* x, size_t count, const QParams& q, uint16_t* y, uint8_t* mask) {
  forward(x, count, q, y, mask);
}

OCTET_CLONES void fake_quantize_backward(const float* dy, const uint8_t* mask, size_t count, float* dx) {
  for (size_t i = 0; i < count; ++i) dx[i] = mask[i] != 0 ? dy[i] : 0.0f;
}

OCTET_CLONES void fake_quantize_backward(const uint16_t* dy, const uint8_t* mask, size_t count, uint16_t* dx) {
  // As a bit mask: GCC 12 does not vectorize the choice.
  for (size_t i = 0; i < count; ++i) dx[i] = static_cast<uint16_t>(dy[i] & -static_cast<int>(mask[i]));
}

void fake_quantize(const float* x, const ChannelQuantization& q, Rows rows, float* y, uint8_t* mask) {
  forward_rows(x, q, rows, y, mask);
}

void fake_quantize(const uint16_t* x, const ChannelQuantization& q, Rows rows, uint16_t* y, uint8_t* mask) {
  forward_rows(x, q, rows, y, mask);
}

OCTET_CLONES double squared_error(const float* x, size_t count, const QParams& qparams) {
  constexpr size_t kLanes = kErrorLanes;  // fixed partial sums: the compiler may not reorder a single one
  const QParams q = qparams;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      float y;
      fake_quantize_one(x[i + lane], q, y);
      const double error = static_cast<double>(y) - x[i + lane];
      sums[lane] += error * error;
    }
  }
  for (; i < count; ++i) {
    float y;
    fake_quantize_one(x[i], q, y);
    const double error = static_cast<double>(y) - x[i];
    sums[i % kLanes] += error * error;
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace octet::kernels
