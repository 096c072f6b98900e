#include "trainers/run/pictures.h"

#include <algorithm>
#include <span>

#include "src/eval/metrics.h"

namespace octet {
namespace {

constexpr long kPictures = 6;

/// The class of every pixel of one image.
std::vector<int> answers(Program& program, const uint8_t* image, const Task& task) {
  const auto classes = static_cast<size_t>(task.classes());
  std::vector<float> logits(task.answers() * classes);
  program.run(image, 1, logits.data());
  std::vector<int> found;
  for (size_t i = 0; i < task.answers(); ++i) found.push_back(arg_max(std::span(logits).subspan(i * classes, classes)));
  return found;
}

}  // namespace

std::vector<ReportPicture> shown_pictures(const RunData& data, Program& before, Program& int8) {
  const Task task = data.task();
  const EvaluationSet set = data.test_images(kPictures);
  Loader loader(*set.dataset, set.indices, set.transform, {.batch_size = 1, .workers = 0});
  std::vector<ReportPicture> pictures;
  for (Batch batch; loader.next(batch);) {
    ReportPicture picture{.name = set.dataset->describe(batch.indices.front()),
                          .image = {set.transform.height, set.transform.width, set.transform.channels, {}}};
    picture.image.pixels.assign(batch.images.begin(), batch.images.end());
    picture.truth.assign(batch.labels.begin(), batch.labels.end());
    picture.before = answers(before, batch.images.data(), task);
    picture.int8 = answers(int8, batch.images.data(), task);
    pictures.push_back(std::move(picture));
  }
  return pictures;
}

}  // namespace octet
