// Statistics of the quantized network with the weights as they are now: what training only follows
// batch by batch is computed anew for the network that is validated or exported. fp32.
#pragma once

#include <functional>

#include "src/qat/quantized_model.h"
#include "src/run/run_data.h"

namespace octet {

/// BatchNorm's running means and variances become the averages over whole batches of `images` training images (all, if
/// there are fewer; at least one batch), which lie evenly in data.train, augmented by `seed` as in training: a network
/// trained on pictures with parts cut out loses points with the statistics of whole ones. Quantizers are active, ranges
/// stay.
void reestimate_batch_norm(QuantizedModel& model, const RunData& data, long images, int batch_size, uint64_t seed);

/// Observers begin anew and see the calibration images as they are evaluated, quantized. Not for histogram observers on
/// a GPU.
void observe_again(QuantizedModel& model, const RunData& data, int batch_size);

/// Calls `body` while ranges are those of observe_again(); then the observers go on from where they were.
void while_observed_again(QuantizedModel& model, const RunData& data, int batch_size,
                          const std::function<void()>& body);

}  // namespace octet
