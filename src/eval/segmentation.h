// Segmentation judged: intersection over union, and two networks on the same pictures.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/eval/paired.h"

namespace octet {

/// Of one picture: adds each pixel to the class it has and the class it was taken for. labels, predictions: [pixels];
/// overlaps: [classes], which it adds to. Pixels of kNoLabel count nowhere.
void add_overlaps(std::span<const int64_t> labels, std::span<const int> predictions, std::span<Overlap> overlaps);

/// Mean over classes of both / either, pixels of all pictures summed first (Everingham et al., The Pascal visual object
/// classes challenge, 2010, 4.2.1). A class that is neither there nor taken for anything is left out; none at all: 0.
/// overlaps: [pictures, classes].
double mean_iou(std::span<const Overlap> overlaps, size_t classes);

/// Pixels of a picture are no independent trials, pictures are: the interval is that of the bootstrap over pictures
/// (Efron and Tibshirani, An introduction to the bootstrap, 1993, 13.3: percentiles of 2,000 draws, the same in every
/// run), and the p-value that of the sign test over the pictures of which one network has more pixels right.
Paired paired_pixels(const Evaluation& first, const Evaluation& second);

}  // namespace octet
