// SPDX-License-Identifier: Apache-2.0
// TensorBoard's event files, read back by a reader of its own.
#include "src/report/event_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <stdexcept>

#include "src/base/files.h"
#include "tests/data/images.h"
#include "tests/report/event_records.h"

namespace octet {
namespace {

using testing::TemporaryFolder;

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path().string());
  return paths;
}

std::vector<double> doubles(const std::string& bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

double number(const test::Fields& fields, int key) { return doubles(fields.find(key)->second).at(0); }

TEST(EventFile, CrcIsThatOfRfc3720) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
}

TEST(EventFile, ScalarsAreReadBackWhileItIsOpen) {
  const TemporaryFolder folder;
  EventFile file(folder.path("events"), 0);
  file.add(1, {{"loss/float/training", 1.5}, {"top1/float/validation", 0.25}});
  file.add(300, {{"loss/float/training", -0.125}});
  const std::vector<std::string> paths = files_in(folder.path("events"));
  ASSERT_EQ(paths.size(), 1u);
  EXPECT_NE(paths[0].find("/events.out.tfevents."), std::string::npos);
  const std::vector<test::EventRecord> records = test::read_events(read_file(paths[0]));
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].file_version, "brain.Event:2");
  EXPECT_EQ(records[1].step, 1);
  EXPECT_EQ(records[1].scalars,
            (std::map<std::string, float>{{"loss/float/training", 1.5f}, {"top1/float/validation", 0.25f}}));
  EXPECT_EQ(records[2].step, 300);
  EXPECT_EQ(records[2].scalars, (std::map<std::string, float>{{"loss/float/training", -0.125f}}));
}

TEST(EventFile, EveryNumberIsReadBack) {
  using Limits = std::numeric_limits<float>;
  const TemporaryFolder folder;
  const std::map<std::string, float> all = {{"inf", Limits::infinity()},  {"minus inf", -Limits::infinity()},
                                            {"max", Limits::max()},       {"denormal", Limits::denorm_min()},
                                            {"nan", Limits::quiet_NaN()}, {"minus zero", -0.0f}};
  EventFile(folder.path(), 0).add(1, {all.begin(), all.end()}, {{"h", -Limits::max(), Limits::max(), {1, 2}}});
  const std::vector<test::EventRecord> records = test::read_events(read_file(files_in(folder.path()).at(0)));
  const std::map<std::string, float>& scalars = records.at(1).scalars;
  ASSERT_EQ(scalars.size(), all.size());
  for (const auto& [tag, value] : all)
    EXPECT_TRUE(std::isnan(value) ? std::isnan(scalars.at(tag)) : scalars.at(tag) == value) << tag;
}

TEST(EventFile, HistogramsKeepTheirBins) {
  const TemporaryFolder folder;
  EventFile(folder.path(), 0).add(7, {}, {{"weights/conv1", -1, 3, {2, 0, 5, 1}}});
  const test::Fields histogram =
      test::read_events(read_file(files_in(folder.path())[0]))[1].histograms.at("weights/conv1");
  EXPECT_EQ(doubles(histogram.find(6)->second), (std::vector<double>{0, 1, 2, 3}));
  EXPECT_EQ(doubles(histogram.find(7)->second), (std::vector<double>{2, 0, 5, 1}));
  EXPECT_EQ(number(histogram, 1), -1);
  EXPECT_EQ(number(histogram, 2), 3);
  EXPECT_EQ(number(histogram, 3), 8);
  EXPECT_EQ(number(histogram, 4), 2 * -0.5 + 5 * 1.5 + 2.5);
  EXPECT_EQ(number(histogram, 5), 2 * 0.25 + 5 * 2.25 + 6.25);
}

TEST(EventFile, AResumedRunIsAFileOfItsOwnThatVoidsWhatItRepeats) {
  const TemporaryFolder folder;
  EventFile(folder.path(), 0).add(1, {{"a", 1}});
  EventFile(folder.path(), 4).add(4, {{"a", 2}});
  int voids = 0;
  for (const std::string& path : files_in(folder.path()))
    for (const test::EventRecord& record : test::read_events(read_file(path)))
      if (record.session_status == 1) {
        ++voids;
        EXPECT_EQ(record.step, 4);
      }
  EXPECT_EQ(files_in(folder.path()).size(), 2u);
  EXPECT_EQ(voids, 1);
}

TEST(EventFile, AWrongBitIsFound) {
  const TemporaryFolder folder;
  EventFile(folder.path(), 0).add(1, {{"a", 1}});
  std::string bytes = read_file(files_in(folder.path())[0]);
  bytes[bytes.size() - 6] ^= 1;
  EXPECT_THROW(test::read_events(bytes), std::runtime_error);
}

TEST(EventFile, AFolderThatCannotBeMadeIsNamed) {
  EXPECT_NE(testing::data_refusal([] { EventFile("/dev/null/events", 0); }).find("/dev/null/events"),
            std::string::npos);
}

}  // namespace
}  // namespace octet
