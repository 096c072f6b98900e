// Gradients of ranges that learn, on the CPU: the definition that the GPU's passes are held to. Each call is one
// thread's share of the values. learned_range.h has the formulas; bfloat16 as in fake_quantize.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/fake_quantize/learned_range.h"

namespace octet::kernels {

/// Before range_gradient_factor().
struct RangeGradient {
  double value = 0;   ///< sum of dy times dy/ds or dy/da
  double offset = 0;  ///< sum of dy times dy/db; 0 for other rules than lsq_plus
};

/// In double, always added in the same order. q: range.qparams() of the edge.
RangeGradient range_gradient(const float* x, const float* dy, size_t count, const LearnedRange& range,
                             const QParams& q);
RangeGradient range_gradient(const uint16_t* x, const uint16_t* dy, size_t count, const LearnedRange& range,
                             const QParams& q);

/// mask[i] is 1 where the gradient of x[i] passes pact's clipping, else 0: in place of fake_quantize()'s.
void clip_mask(const float* x, size_t count, const ClipEnds& ends, uint8_t* mask);
void clip_mask(const uint16_t* x, size_t count, const ClipEnds& ends, uint8_t* mask);

}  // namespace octet::kernels
