// Batches on the GPU: made there from pictures that stay there, or by the loader's threads and sent one ahead.
#pragma once

#include <memory>
#include <string>

#include "trainers/batches/batches.h"

namespace octet {

/// After require_batches(). Resident where they can be and fit (a quarter of the free memory at most, if "auto"), else
/// uploaded.
std::unique_ptr<Batches> make_gpu_batches(const RunData& data, const BatchesOptions& options);

/// Throws Error(usage) with the reason and the cure when the training pictures cannot stay on the GPU.
void require_resident(const RunData& data, at::Device device);

/// Why the training pictures cannot be augmented by our kernel; "": they can.
std::string why_not_resident(const RunData& data);

/// All training pictures as bytes on the GPU; each batch is one launch there.
std::unique_ptr<Batches> resident_batches(const RunData& data, const BatchesOptions& options);

/// The loader fills page-locked memory; a stream of its own copies one batch ahead; the GPU normalizes.
std::unique_ptr<Batches> uploaded_batches(const RunData& data, const BatchesOptions& options);

/// Memory on `device` for one batch.
Batches::Labelled empty_batch(const RunData& data, const BatchesOptions& options);

/// float [channels, 256] on `device`: the value of each pixel, normalize_pixel().
at::Tensor normalization_tables(const RunData& data, at::Device device);

}  // namespace octet
