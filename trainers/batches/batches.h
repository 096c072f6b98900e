// The batches of a training phase, where the network trains.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "src/data/epoch.h"
#include "src/run/run_data.h"

namespace octet {

/// The pixels of batch b of an epoch depend on seed, epoch and b only: they are the same from every source and on every
/// device.
class Batches {
 public:
  virtual ~Batches() = default;
  virtual void begin(const Epoch& epoch, long first_batch) = 0;

  struct Labelled {
    at::Tensor images;  ///< normalized float [N, C, H, W], channels-last
    at::Tensor labels;  ///< int64 [N]; of Labels::pixels [N, H, W], kNoLabel among them
  };
  /// The next batch of the epoch; null at its end. On a GPU it is being made when this returns, always in the same
  /// memory, after what the current stream does so far.
  virtual const Labelled* next() = 0;
  virtual void fetch_ahead() {}                        ///< called when the step with the last batch is launched
  virtual double waited_seconds() const { return 0; }  ///< since begin(), that next() waited for pictures on the CPU
};

struct BatchesOptions {
  int batch_size = 0;  ///< of all ranks together
  at::Device device = at::kCPU;
  std::string resident_images = "auto";  ///< the recipe's cuda.resident_images
  int rank = 0, ranks = 1;               ///< which share of every batch these are; ranks divides batch_size

  int own_size() const { return batch_size / ranks; }  ///< N of this rank's batches
};

/// Of the labels of `pictures` pictures: [pictures], or [pictures, H, W].
std::vector<int64_t> labels_shape(const RunData& data, int pictures);

/// Throws Error(usage) when resident_images is "on" and the transform, the pictures or the GPU's memory do not allow
/// it.
void require_batches(const RunData& data, const BatchesOptions& options);

/// `data` outlives the batches. Throws as require_batches() does.
std::unique_ptr<Batches> make_batches(const RunData& data, const BatchesOptions& options);

}  // namespace octet
