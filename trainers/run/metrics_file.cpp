#include "trainers/run/metrics_file.h"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/common/error.h"
#include "src/common/files.h"
#include "src/tensor_files/json.h"

namespace octet {

// nlohmann finds these by name; they live beside EpochMetrics' use so that the keys stand in one place.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EpochMetrics, phase, epoch, train_loss, train_cross_entropy, train_top1,
                                   validation_loss, validation_top1, learning_rate, images_per_second, data_wait_share,
                                   seconds, gpu_memory_bytes)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankMetrics, images_per_second, data_wait_share, exchange_share, gpu_memory_bytes)

namespace {

constexpr const char* kRanks = "ranks";                  // only where there are several
constexpr const char* kMeanIou = "validation_mean_iou";  // only where pixels have classes

nlohmann::json line_of(const EpochMetrics& metrics) {
  nlohmann::json line = metrics;
  if (metrics.validation_mean_iou) line[kMeanIou] = *metrics.validation_mean_iou;
  if (!metrics.ranks.empty()) line[kRanks] = metrics.ranks;
  return spell_numbers(std::move(line));
}

EpochMetrics metrics_of(const nlohmann::json& line) {
  auto metrics = line.get<EpochMetrics>();
  if (line.contains(kMeanIou)) metrics.validation_mean_iou = line.at(kMeanIou).get<double>();
  if (line.contains(kRanks)) metrics.ranks = line.at(kRanks).get<std::vector<RankMetrics>>();
  return metrics;
}

}  // namespace

std::vector<EpochMetrics> read_metrics(const std::string& path) {
  std::vector<EpochMetrics> metrics;
  if (!std::filesystem::exists(path)) return metrics;
  std::istringstream lines(read_file(path));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    try {
      metrics.push_back(metrics_of(read_numbers(nlohmann::json::parse(line))));
    } catch (const nlohmann::json::exception& error) {
      throw data_error(fmt::format("{}:{}: not a line of metrics: {}", path, number, error.what()));
    }
  }
  return metrics;
}

void add_metrics(const std::string& path, const EpochMetrics& metrics) {
  std::string text;
  for (const EpochMetrics& earlier : read_metrics(path)) {
    if (earlier.phase == metrics.phase && earlier.epoch >= metrics.epoch) continue;
    text += line_of(earlier).dump() + "\n";
  }
  write_file_atomically(path, text + line_of(metrics).dump() + "\n");
}

}  // namespace octet
