// Weights that oscillate between two codes during QAT, and their freezing (Nagel et al., arXiv 2203.11086, algorithm
// 1). Host and device: the definition is follow_oscillation().
//
//   after each step of the optimizer, c = clamp(rint(w / s)) a weight's code, m = kOscillationMomentum:
//   o = 1 where c is another than before and its last change went the other way, else 0
//   f += m (o - f)                  how often it turns back, of the steps
//   a += m (c - a)                  its mean code
//   where f > threshold: w is frozen, and from now on w = s clamp(rint(a)), whatever the optimizer and s do
#pragma once

#include "kernels/fake_quantize/weight_codes.h"

namespace octet::kernels {

inline constexpr float kOscillationMomentum = 0.01f;  // the paper's
inline constexpr int8_t kFrozen = 2;                  // in place of a direction

/// What is known of the weights of one tensor, in the order that they lie in memory; they begin with the code of the
/// weight, no direction, frequency 0 and their code as mean.
struct Oscillation {
  int8_t* code = nullptr;       ///< of the last step; frozen: the one that stays
  int8_t* direction = nullptr;  ///< of its last change: -1, 1; 0: none yet; kFrozen
  float* frequency = nullptr;   ///< f
  float* mean = nullptr;        ///< a
};

/// One weight [channels, per_channel] without gaps, a scale a channel.
struct OscillatingWeights {
  float* weight = nullptr;
  const float* scale = nullptr;  ///< [channels]
  Oscillation state;
  int32_t channels = 0, per_channel = 0;
  WeightCodes codes;
};

/// The step of weight i, whose scale that is.
OCTET_HOST_DEVICE inline void follow_oscillation(const OscillatingWeights& weights, long i, float scale,
                                                 float threshold) {
  const Oscillation& state = weights.state;
  const QParams q = weights.codes.qparams(scale);
  if (state.direction[i] != kFrozen) {
    const int32_t code = quantize(weights.weight[i], q), change = code - state.code[i];
    const int8_t way = static_cast<int8_t>((change > 0) - (change < 0));
    const float turned = way != 0 && way == -state.direction[i] ? 1.0f : 0.0f;
    if (way != 0) state.direction[i] = way;
    state.code[i] = static_cast<int8_t>(code);
    state.frequency[i] = fmaf(kOscillationMomentum, turned - state.frequency[i], state.frequency[i]);
    state.mean[i] = fmaf(kOscillationMomentum, static_cast<float>(code) - state.mean[i], state.mean[i]);
    if (!(state.frequency[i] > threshold)) return;
    state.direction[i] = kFrozen;
    state.code[i] = static_cast<int8_t>(clamp_code(rintf(state.mean[i]), q.quant_min, q.quant_max));
  }
  weights.weight[i] = dequantize(state.code[i], q);
}

/// Of channels [begin, end).
void freeze_oscillating(const OscillatingWeights& weights, long begin, long end, float threshold);

}  // namespace octet::kernels
