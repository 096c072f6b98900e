// SPDX-License-Identifier: Apache-2.0
// Each case of a program with LibTorch begins with one of LibTorch's threads, whatever the case before it set. Tests
// share the cores, and oneDNN's threads wait for each other in a loop: six times the processor's time for a small
// network.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace {

class OneThread : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { at::set_num_threads(1); }
};

[[maybe_unused]] const bool kListens = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new OneThread);
  return true;
}();

}  // namespace
