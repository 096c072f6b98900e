#include "trainers/run/validation_pictures.h"

#include <algorithm>

#include "src/model/device.h"

namespace octet {

std::vector<at::Tensor> validation_pictures(const Run& run, int images) {
  const EvaluationSet set = run.data.validation_images();
  const size_t count = std::min<size_t>(static_cast<size_t>(images), set.indices.size());
  std::vector<size_t> indices;
  for (size_t i = 0; i < count; ++i) indices.push_back(set.indices[i * set.indices.size() / count]);
  Loader loader(*run.data.validation_set, indices, run.data.evaluation_transform,
                {.batch_size = run.recipe.evaluate.batch_size, .workers = run.data.workers});
  std::vector<at::Tensor> batches;
  for (Batch batch; loader.next(batch);)
    batches.push_back(images_to_tensor({batch.images.data(), batch.size, run.graph.nodes.front().shape}, run.data.mean,
                                       run.data.std, run.device));
  return batches;
}

}  // namespace octet
