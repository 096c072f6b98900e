// SPDX-License-Identifier: Apache-2.0
// Observed ranges of the quantized network, and how ranks agree on them. Training only follows them batch by batch; for
// averaged weights that are validated or exported they are read anew, in fp32.
#pragma once

#include <functional>
#include <vector>

#include "src/quant/calibrate.h"
#include "src/recipe/run.h"
#include "src/train/model/model.h"
#include "src/train/qat/quantized_model.h"
#include "trainers/parallel/ranks.h"

namespace octet {

/// Resets the observers and shows them the calibration images through the quantized network. Not for histogram
/// observers on a GPU.
void observe_again(QuantizedModel& model, const RunData& data, int batch_size);

/// Calls `body` while the ranges are those of observe_again(), then restores the observers.
void while_observed_again(QuantizedModel& model, const RunData& data, int batch_size,
                          const std::function<void()>& body);

/// Copies rank 0's weights and, if not null, quantizers to all ranks. Needed after each rank computed them from the
/// same images by itself, since sums on GPUs may differ in their last bits. Waits for busy ranks as long as they live.
void take_from_first(Ranks& ranks, const Weights& weights, QuantizedModel* quantized);

/// Adds the other ranks' statistics, of minmax or histogram observers, to each rank's observers. All ranks get the bits
/// of one rank that saw all images: counts are integers, and bins are a power of two wide.
void sum_histograms(Ranks& ranks, std::vector<Observer>& observers);

}  // namespace octet
