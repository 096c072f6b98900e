// SPDX-License-Identifier: Apache-2.0
// Fake quantization and the gradients of trained ranges on the CPU. Built with -fno-math-errno -fno-trapping-math
// (kernels/CMakeLists.txt), without which rintf and the comparisons would not vectorize; results are the same.
#include "kernels/training/fake_quantize.h"

#include <algorithm>
#include <bit>

#include "kernels/core/cpu.h"
#include "kernels/training/weights.h"

namespace octet::kernels {
namespace {

/// Returns a float, or a bfloat16 that is stored in a uint16_t, as float.
inline float widen(float x) { return x; }
inline float widen(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

void narrow(float value, float& y) { y = value; }
void narrow(float value, uint16_t& y) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);  // finite: codes times a finite scale
  y = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/// A value's steps rint(x / scale), and its code before and after clamping. They stay in float, where codes are exact.
struct FloatCode {
  float rounded, code, clamped;

  [[gnu::always_inline]] FloatCode(float x, const QParams& q)
      : rounded(rintf(x / q.scale)), code(rounded + static_cast<float>(q.zero_point)) {
    const float lo = static_cast<float>(q.quant_min), hi = static_cast<float>(q.quant_max);
    const float above = code > lo ? code : lo;  // NaN becomes lo, as in clamp_code()
    clamped = above < hi ? above : hi;
  }
};

/// Writes the fake-quantized x to y and returns the mask: 1 where the code was not clamped.
template <typename T>
[[gnu::always_inline]] inline uint8_t fake_quantize_one(T x, const QParams& q, T& y) {
  const FloatCode c(widen(x), q);
  narrow(q.scale * (c.clamped - static_cast<float>(q.zero_point)), y);
  return static_cast<uint8_t>(c.code == c.clamped);
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

/// Sums are kept in this many partial sums, so that loops vectorize and every machine adds in the same order.
constexpr size_t kLanes = kErrorLanes;

/// Calls add(i, lane) for i in [0, count), in an order that vectorizes: value i goes to partial sum i % kLanes.
template <class Add>
[[gnu::always_inline]] inline void for_each_lane(size_t count, const Add& add) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  for (; i < count; ++i) add(i, i % kLanes);
}

inline double total_of(const double (&lanes)[kLanes]) {
  double total = 0;
  for (const double sum : lanes) total += sum;
  return total;
}

/// Returns the slope dy/ds of a value that has this code: with lsq `zero` is the zero point, with lsq_plus 0.
[[gnu::always_inline]] inline double slope_of(float x, const FloatCode& c, float scale, float zero) {
  const double inside = static_cast<double>(c.rounded) - static_cast<double>(x) / static_cast<double>(scale);
  return c.code == c.clamped ? inside : static_cast<double>(c.clamped - zero);
}

template <class T>
[[gnu::always_inline]] inline double lsq_gradient(const T* x, const T* dy, size_t count, const QParams& qparams) {
  const QParams q = qparams;
  double sums[kLanes] = {};
  for_each_lane(count, [&](size_t i, size_t lane) {
    const float value = widen(x[i]);
    const double slope = slope_of(value, FloatCode(value, q), q.scale, static_cast<float>(q.zero_point));
    sums[lane] += static_cast<double>(widen(dy[i])) * slope;
  });
  return total_of(sums);
}

template <class T>
[[gnu::always_inline]] inline RangeGradient lsq_plus_gradient(const T* x, const T* dy, size_t count,
                                                              const QParams& qparams) {
  const QParams q = qparams;
  double values[kLanes] = {}, offsets[kLanes] = {};
  for_each_lane(count, [&](size_t i, size_t lane) {
    const float value = widen(x[i]);
    const double gradient = static_cast<double>(widen(dy[i]));
    const FloatCode c(value, q);
    values[lane] += gradient * slope_of(value, c, q.scale, 0.0f);
    offsets[lane] += c.code == c.clamped ? 0.0 : gradient;
  });
  return {total_of(values), total_of(offsets)};
}

template <class T>
[[gnu::always_inline]] inline RangeGradient gradient_of(const T* x, const T* dy, size_t count, RangeRule rule,
                                                        const QParams& q) {
  if (rule == RangeRule::lsq_plus) return lsq_plus_gradient(x, dy, count, q);
  return {.value = lsq_gradient(x, dy, count, q)};
}

}  // namespace

OCTET_CLONES void fake_quantize(const float* x, size_t count, const QParams& q, float* y, uint8_t* mask) {
  forward(x, count, q, y, mask);
}

OCTET_CLONES void fake_quantize(const uint16_t* x, size_t count, const QParams& q, uint16_t* y, uint8_t* mask) {
  forward(x, count, q, y, mask);
}

void fake_quantize(const float* x, const ChannelQuantization& q, Rows rows, float* y, uint8_t* mask) {
  forward_rows(x, q, rows, y, mask);
}

void fake_quantize(const uint16_t* x, const ChannelQuantization& q, Rows rows, uint16_t* y, uint8_t* mask) {
  forward_rows(x, q, rows, y, mask);
}

OCTET_CLONES void fake_quantize_backward(const float* dy, const uint8_t* mask, size_t count, float* dx) {
  for (size_t i = 0; i < count; ++i) dx[i] = mask[i] != 0 ? dy[i] : 0.0f;
}

OCTET_CLONES void fake_quantize_backward(const uint16_t* dy, const uint8_t* mask, size_t count, uint16_t* dx) {
  // As a bit mask: GCC 12 does not vectorize the choice.
  for (size_t i = 0; i < count; ++i) dx[i] = static_cast<uint16_t>(dy[i] & -static_cast<int>(mask[i]));
}

OCTET_CLONES void quantize_to_int8(const float* x, size_t count, const QParams& qparams, int8_t* codes) {
  const QParams q = qparams;
  for (size_t i = 0; i < count; ++i) codes[i] = static_cast<int8_t>(quantize(x[i], q));
}

OCTET_CLONES CodeRow see_codes(const int8_t* codes, size_t count) {
  constexpr size_t kRun = 1 << 20;  // sums of so many magnitudes stay within int32
  CodeRow row;
  for (size_t first = 0; first < count; first += kRun) {
    int8_t lowest = 0, highest = 0;
    int32_t magnitude = 0;
    for (size_t i = first; i < std::min(count, first + kRun); ++i) {
      lowest = codes[i] < lowest ? codes[i] : lowest;
      highest = codes[i] > highest ? codes[i] : highest;
      magnitude += codes[i] < 0 ? -codes[i] : codes[i];
    }
    row = {std::min<int32_t>(row.lowest, lowest), std::max<int32_t>(row.highest, highest), row.magnitude + magnitude};
  }
  return row;
}

OCTET_CLONES double squared_error(const float* x, size_t count, const QParams& qparams) {
  const QParams q = qparams;
  double sums[kLanes] = {};
  for_each_lane(count, [&](size_t i, size_t lane) {
    float y;
    fake_quantize_one(x[i], q, y);
    const double error = static_cast<double>(y) - x[i];
    sums[lane] += error * error;
  });
  return total_of(sums);
}

OCTET_CLONES RangeGradient range_gradient(const float* x, const float* dy, size_t count, RangeRule rule,
                                          const QParams& q) {
  return gradient_of(x, dy, count, rule, q);
}

OCTET_CLONES RangeGradient range_gradient(const uint16_t* x, const uint16_t* dy, size_t count, RangeRule rule,
                                          const QParams& q) {
  return gradient_of(x, dy, count, rule, q);
}

}  // namespace octet::kernels
