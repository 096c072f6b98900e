// SPDX-License-Identifier: Apache-2.0
#include "src/train/model/threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

namespace octet {
namespace {

struct Shares {
  std::map<int64_t, int64_t> parts;  ///< end by begin
  std::map<std::thread::id, int> threads;
};

Shares shares(int threads, int64_t count, int64_t grain) {
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  Shares seen;
  std::mutex mutex;
  share_among_threads(count, grain, [&](int64_t begin, int64_t end) {
    const std::lock_guard<std::mutex> lock(mutex);
    seen.parts.emplace(begin, end);
    ++seen.threads[std::this_thread::get_id()];
  });
  at::set_num_threads(before);
  return seen;
}

TEST(ShareAmongThreads, EachPartHasAThreadOfItsOwn) {
  for (const int threads : {2, 3, 4}) {
    const Shares seen = shares(threads, 4000, 100);
    EXPECT_EQ(seen.threads.size(), static_cast<size_t>(threads));
    EXPECT_EQ(seen.parts.size(), static_cast<size_t>(threads));
    int64_t covered = 0;
    for (const auto& [begin, end] : seen.parts) {
      EXPECT_EQ(begin, covered);
      covered = end;
    }
    EXPECT_EQ(covered, 4000);
  }
}

TEST(ShareAmongThreads, OneThreadWhereThereIsNoMoreToDo) {
  for (const Shares& seen : {shares(1, 4000, 100), shares(4, 100, 100)}) {
    EXPECT_EQ(seen.parts.size(), 1u);
    EXPECT_EQ(seen.threads.count(std::this_thread::get_id()), 1u);
  }
  EXPECT_EQ(shares(4, 250, 100).parts.size(), 3u);
  EXPECT_TRUE(shares(4, 0, 100).parts.empty());
}

TEST(ShareAmongThreads, AnErrorOfAShareComesBack) {
  at::set_num_threads(2);
  EXPECT_THROW(share_among_threads(2, 1,
                                   [](int64_t begin, int64_t) {
                                     if (begin == 1) throw std::runtime_error("the second");
                                   }),
               std::runtime_error);
}

}  // namespace
}  // namespace octet
