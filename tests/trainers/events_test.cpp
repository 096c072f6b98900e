// SPDX-License-Identifier: Apache-2.0
// What a run writes for TensorBoard: every epoch's metrics, QAT's ranges, the report's histograms.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "src/base/files.h"
#include "tests/report/event_records.h"
#include "tests/trainers/tiny.h"
#include "trainers/run/pipeline.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::tiny_recipe;

/// Returns the records of all files, by name: in the order in which they were begun, for starts of different seconds.
std::vector<std::vector<test::EventRecord>> events_of(const RunDirectory& directory) {
  std::vector<std::vector<test::EventRecord>> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory.events()))
    files.push_back(test::read_events(read_file(entry.path().string())));
  return files;
}

TEST(RunEvents, HoldMetricsRangesAndHistograms) {
  const Folder folder("events");
  const RunDirectory directory{folder.path() + "/run"};
  const Report report = train(tiny_recipe(), directory, {}).value();
  const auto files = events_of(directory);
  ASSERT_EQ(files.size(), 1u);
  const std::vector<test::EventRecord>& records = files[0];
  ASSERT_EQ(records.size(), 6u);  // the version, four epochs, the report
  for (size_t i = 0; i < report.epochs.size(); ++i) {
    const EpochMetrics& m = report.epochs[i];
    std::map<std::string, float> scalars = records[i + 1].scalars;
    EXPECT_EQ(records[i + 1].step, static_cast<long>(i) + 1);
    EXPECT_EQ(scalars.at("loss/" + m.phase + "/training"), static_cast<float>(m.train_cross_entropy));
    EXPECT_EQ(scalars.at("top1/" + m.phase + "/validation"), static_cast<float>(m.validation_top1.value()));
    EXPECT_EQ(scalars.at("learning_rate/" + m.phase), static_cast<float>(m.learning_rate));
    EXPECT_EQ(scalars.contains("ranges/conv1/low"), m.phase == "qat");
    if (m.phase != "qat") continue;
    EXPECT_LT(scalars.at("ranges/conv1/low"), scalars.at("ranges/conv1/high"));
  }
  EXPECT_EQ(records.back().scalars.at("test/cpu"), static_cast<float>(report.rows[4].evaluation.top1));
  for (const ReportLayer& layer : report.layers)
    EXPECT_TRUE(records.back().histograms.contains("activations/" + layer.statistics.name)) << layer.statistics.name;
}

TEST(RunEvents, AnEpochWithoutValidationHasNoPointOfIt) {
  const Folder folder("events_val_interval");
  const RunDirectory directory{folder.path() + "/run"};
  Recipe recipe = tiny_recipe();
  recipe.train.val_interval = recipe.qat.val_interval = 2;
  train(recipe, directory, {});
  const auto files = events_of(directory);
  ASSERT_EQ(files.size(), 1u);
  for (const size_t epoch : {1, 2, 3, 4}) {
    const std::map<std::string, float>& scalars = files[0].at(epoch).scalars;
    const std::string phase = epoch < 3 ? "float" : "qat";
    EXPECT_TRUE(scalars.contains("loss/" + phase + "/training"));
    for (const char* what : {"loss/", "top1/"})
      EXPECT_EQ(scalars.contains(what + phase + "/validation"), epoch % 2 == 0) << epoch;
    EXPECT_EQ(scalars.contains("ranges/conv1/low"), epoch == 4) << "ranges are those of what is validated";
  }
}

TEST(RunEvents, AnEpochThatIsGivenUpIsNotThere) {
  const Folder folder("events_given_up");
  const RunDirectory directory{folder.path() + "/run"};
  Recipe recipe = tiny_recipe();  // whose first rates ruin this network on images of large values
  recipe.model.graph = {{"flatten", "flatten", {}, {}}, {"fc", "linear", {}, {{"out_channels", 4}}}};
  recipe.data.std = {0.06};
  recipe.train.learning_rate = 0;
  recipe.qat.epochs = 0;
  std::vector<EpochMetrics> told;
  const Report report =
      train(recipe, directory, {.epoch_done = [&](const EpochMetrics& epoch) { told.push_back(epoch); }}).value();
  const auto given_up = [](const std::string& note) { return note.find("ruined") != std::string::npos; };
  ASSERT_TRUE(std::any_of(report.notes.begin(), report.notes.end(), given_up)) << "no rate was given up";
  EXPECT_EQ(told.size(), 2u);
  const auto files = events_of(directory);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].size(), 4u);  // the version, two epochs, the report
}

TEST(RunEvents, AResumedRunGoesOnBehindTheEpochsThereAre) {
  const Folder folder("events_resumed");
  Recipe recipe = tiny_recipe();
  const RunDirectory directory{folder.path() + "/run"};
  train(recipe, directory, {});
  train(recipe, directory, {.resume = true});
  int begun_again = 0;
  for (const auto& records : events_of(directory))
    for (const test::EventRecord& record : records)
      if (record.session_status == 1) {
        ++begun_again;
        EXPECT_EQ(record.step, 5);
      }
  EXPECT_EQ(begun_again, 1);
}

}  // namespace
}  // namespace octet
