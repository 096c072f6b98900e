// SPDX-License-Identifier: Apache-2.0
// A choice is measured once. Needs no GPU.
#include "src/engine/cuda/choice.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>

#include "src/base/files.h"
#include "src/engine/kernel_cache.h"

namespace octet::test {
namespace {

struct Counted {
  int measured = 0;
  size_t operator()(const std::string& work, const std::vector<std::string>& names, size_t fastest) {
    return remembered_choice(work, names, [&] { return ++measured, MeasuredChoice{fastest}; });
  }
};

size_t files_in(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder) ? std::distance(std::filesystem::directory_iterator(folder), {}) : 0;
}

TEST(RememberedChoice, IsMeasuredOnceForEachWorkAndNames) {
  Counted choose;
  EXPECT_EQ(choose("remembered 1", {"a", "b"}, 1), 1u);
  EXPECT_EQ(choose("remembered 1", {"a", "b"}, 0), 1u);
  EXPECT_EQ(choose.measured, 1);
  EXPECT_EQ(choose("remembered 2", {"a", "b"}, 0), 0u);
  EXPECT_EQ(choose("remembered 1", {"a", "c"}, 0), 0u);
  EXPECT_EQ(choose.measured, 3);
  EXPECT_EQ(choose("remembered 3", {"only"}, 7), 0u);
  EXPECT_EQ(choose.measured, 3);
}

TEST(RememberedChoice, IsKeptForLaterProcesses) {
  const std::filesystem::path folder = ::testing::TempDir() + "octet_choices_" + std::to_string(::getpid());
  set_kernel_cache(folder);
  Counted choose;
  EXPECT_EQ(choose("remembered 4", {"a", "b"}, 1), 1u);
  set_kernel_cache("");
  ASSERT_EQ(files_in(folder), 1u);
  const std::string kept = read_file(std::filesystem::directory_iterator(folder)->path());
  EXPECT_NE(kept.find("kernels " OCTET_KERNEL_SOURCES ","), std::string::npos) << kept;  // none of another kernel's
  std::filesystem::remove_all(folder);
}

TEST(RememberedChoice, IsThisProcesssAloneWhereMemoryWasShort) {
  const std::filesystem::path folder = ::testing::TempDir() + "octet_short_choices_" + std::to_string(::getpid());
  set_kernel_cache(folder);
  int measured = 0;
  const auto short_of_memory = [&] { return ++measured, MeasuredChoice{1, false}; };
  EXPECT_EQ(remembered_choice("remembered 5", {"a", "b"}, short_of_memory), 1u);
  EXPECT_EQ(remembered_choice("remembered 5", {"a", "b"}, short_of_memory), 1u);
  set_kernel_cache("");
  EXPECT_EQ(measured, 1);
  EXPECT_EQ(files_in(folder), 0u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace octet::test
