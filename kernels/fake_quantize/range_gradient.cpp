#include "kernels/fake_quantize/range_gradient.h"

#include "kernels/clones.h"
#include "kernels/fake_quantize/fake_quantize.h"
#include "kernels/fake_quantize/widened.h"

namespace octet::kernels {
namespace {

constexpr size_t kLanes = 16;  // fixed partial sums, so that it vectorizes

struct Lanes {
  double value[kLanes] = {}, offset[kLanes] = {};

  RangeGradient total() const {
    RangeGradient sum;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      sum.value += value[lane];
      sum.offset += offset[lane];
    }
    return sum;
  }
};

template <class T, class Add>
[[gnu::always_inline]] inline RangeGradient summed(const T* x, const T* dy, size_t count, const Add& add) {
  Lanes sums;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane)
      add(widen(x[i + lane]), static_cast<double>(widen(dy[i + lane])), sums.value[lane], sums.offset[lane]);
  }
  for (; i < count; ++i) {
    const size_t lane = i % kLanes;
    add(widen(x[i]), static_cast<double>(widen(dy[i])), sums.value[lane], sums.offset[lane]);
  }
  return sums.total();
}

template <class T>
[[gnu::always_inline]] inline RangeGradient with_offset(const T* x, const T* dy, size_t count, const QParams& q) {
  const float lo = static_cast<float>(q.quant_min), hi = static_cast<float>(q.quant_max);
  const float zero_point = static_cast<float>(q.zero_point), scale = q.scale;
  return summed(x, dy, count, [=](float v, double gradient, double& value, double& offset) {
    const float rounded = rintf(v / scale), code = rounded + zero_point;
    const float above = code > lo ? code : lo;  // NaN becomes lo, as in clamp_code
    const float clamped = above < hi ? above : hi;
    const double inside = static_cast<double>(rounded) - static_cast<double>(v) / static_cast<double>(scale);
    value += gradient * (code == clamped ? inside : static_cast<double>(clamped));
    offset += code == clamped ? 0.0 : gradient;
  });
}

template <class T>
[[gnu::always_inline]] inline RangeGradient of_clipping(const T* x, const T* dy, size_t count, const ClipEnds& ends,
                                                        const QParams& q) {
  const EndSlopes slopes(RangeRule::pact, q);
  const double below = slopes.below, above = slopes.above;
  const float lo = ends.lo, hi = ends.hi;
  return summed(x, dy, count, [=](float v, double gradient, double& value, double&) {
    const double upper = v >= hi ? above : 0.0;
    value += gradient * (v >= lo ? upper : below);  // NaN takes the lowest code
  });
}

template <class T>
[[gnu::always_inline]] inline RangeGradient gradient_of(const T* x, const T* dy, size_t count,
                                                        const LearnedRange& range, const QParams& q) {
  if (range.rule == RangeRule::pact) return of_clipping(x, dy, count, ClipEnds(range.value, q), q);
  if (range.rule == RangeRule::lsq_plus) return with_offset(x, dy, count, q);
  return {.value = scale_gradient(x, dy, count, q)};
}

template <class T>
[[gnu::always_inline]] inline void mask_of(const T* x, size_t count, const ClipEnds& ends, uint8_t* mask) {
  const ClipEnds e = ends;  // a local: stores through mask cannot change it
  for (size_t i = 0; i < count; ++i) {
    const float v = widen(x[i]);
    mask[i] = static_cast<uint8_t>(static_cast<int>(v >= e.lo) & static_cast<int>(v < e.hi));
  }
}

}  // namespace

OCTET_CLONES RangeGradient range_gradient(const float* x, const float* dy, size_t count, const LearnedRange& range,
                                          const QParams& q) {
  return gradient_of(x, dy, count, range, q);
}

OCTET_CLONES RangeGradient range_gradient(const uint16_t* x, const uint16_t* dy, size_t count,
                                          const LearnedRange& range, const QParams& q) {
  return gradient_of(x, dy, count, range, q);
}

OCTET_CLONES void clip_mask(const float* x, size_t count, const ClipEnds& ends, uint8_t* mask) {
  mask_of(x, count, ends, mask);
}

OCTET_CLONES void clip_mask(const uint16_t* x, size_t count, const ClipEnds& ends, uint8_t* mask) {
  mask_of(x, count, ends, mask);
}

}  // namespace octet::kernels
