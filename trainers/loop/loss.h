// What a step minimizes and counts. The shape of the labels says what is asked: a class for each picture, or for each
// pixel (src/eval/task.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace octet {

/// Mean cross-entropy over the labels. logits: as walk() gives them, [N, classes], or of pixels [N, classes * H * W];
/// labels: int64 [N], or [N, H, W] with kNoLabel where a pixel counts for nothing; where all are, the mean is 0.
/// smoothing: share of the target spread over all classes (Szegedy et al. 2016). Float32 scalar.
at::Tensor mean_loss(const at::Tensor& logits, const at::Tensor& labels, double smoothing);

/// How many pictures are right, a double scalar: of pixels' labels each picture's worth is shared by all of the batch.
at::Tensor right_pictures(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace octet
