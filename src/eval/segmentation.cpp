#include "src/eval/segmentation.h"

#include <algorithm>

#include "src/common/random.h"
#include "src/common/samples.h"
#include "src/data/loader.h"

namespace octet {
namespace {

constexpr int kDraws = 2000;

double mean_of(std::span<const Overlap> classes) {
  double sum = 0;
  int seen = 0;
  for (const Overlap& o : classes) {
    if (o.either == 0) continue;
    sum += static_cast<double>(o.both) / static_cast<double>(o.either);
    ++seen;
  }
  return seen == 0 ? 0 : sum / seen;
}

void add(std::span<const Overlap> picture, std::span<Overlap> sums) {
  for (size_t c = 0; c < sums.size(); ++c) {
    sums[c].both += picture[c].both;
    sums[c].either += picture[c].either;
  }
}

std::span<const Overlap> picture_of(const Evaluation& e, size_t picture) {
  const auto classes = static_cast<size_t>(e.task.classes());
  return std::span(e.overlaps).subspan(picture * classes, classes);
}

long right_pixels(std::span<const Overlap> picture) {
  long right = 0;
  for (const Overlap& o : picture) right += o.both;
  return right;
}

/// 100 * (mean IoU of the first - that of the second) over those pictures.
double difference(const Evaluation& first, const Evaluation& second, std::span<const size_t> pictures) {
  const auto score = [&](const Evaluation& e) {
    std::vector<Overlap> sums(static_cast<size_t>(e.task.classes()));
    for (const size_t picture : pictures) add(picture_of(e, picture), sums);
    return mean_of(sums);
  };
  return 100 * (score(first) - score(second));
}

}  // namespace

void add_overlaps(std::span<const int64_t> labels, std::span<const int> predictions, std::span<Overlap> overlaps) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == kNoLabel) continue;
    Overlap& own = overlaps[static_cast<size_t>(labels[i])];
    ++own.either;
    if (predictions[i] == labels[i]) {
      ++own.both;
    } else {
      ++overlaps[static_cast<size_t>(predictions[i])].either;
    }
  }
}

double mean_iou(std::span<const Overlap> overlaps, size_t classes) {
  std::vector<Overlap> sums(classes);
  for (size_t begin = 0; begin + classes <= overlaps.size(); begin += classes)
    add(overlaps.subspan(begin, classes), sums);
  return mean_of(sums);
}

Paired paired_pixels(const Evaluation& first, const Evaluation& second) {
  const auto images = static_cast<size_t>(std::min(first.images, second.images));
  long only_first = 0, only_second = 0;
  for (size_t i = 0; i < images; ++i) {
    const long a = right_pixels(picture_of(first, i)), b = right_pixels(picture_of(second, i));
    only_first += a > b;
    only_second += b > a;
  }
  Paired p{.images = static_cast<long>(images), .only_first = only_first, .only_second = only_second};
  if (images == 0) return p;
  std::vector<size_t> pictures(images);
  for (size_t i = 0; i < images; ++i) pictures[i] = i;
  p.points = difference(first, second, pictures);
  p.p_value = sign_test(only_first, only_second);
  Random random({images});
  std::vector<double> draws;
  for (int draw = 0; draw < kDraws; ++draw) {
    for (size_t& picture : pictures) picture = random.below(static_cast<uint32_t>(images));
    draws.push_back(difference(first, second, pictures));
  }
  p.low = percentile(draws, 0.025);
  p.high = percentile(std::move(draws), 0.975);
  return p;
}

}  // namespace octet
