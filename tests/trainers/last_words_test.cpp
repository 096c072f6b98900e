// SPDX-License-Identifier: Apache-2.0
#include "trainers/parallel/lost_ranks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace octet {
namespace {

constexpr std::chrono::milliseconds kAnswersAfter{50};

/// As one on a host whose processors are busy: each answer comes late, to who waits less long none.
class SlowStore : public c10d::HashStore {
 public:
  bool check(const std::vector<std::string>& keys) override {
    std::this_thread::sleep_for(kAnswersAfter);
    return HashStore::check(keys);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    if (timeout < kAnswersAfter) throw std::runtime_error("timed out");
    HashStore::wait(keys, timeout);
  }
};

void put(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

TEST(LastWords, OneThatSpokeIsNotSilentBecauseAnotherTookAllTheTime) {
  const auto store = c10::make_intrusive<SlowStore>();
  put(*store, "ended/2", "");  // rank 2 lives, and lost rank 1 too
  put(*store, "read/2", "");
  EXPECT_EQ(LastWords(store, 0, 3).ask(), "rank 1 ended without a word, or hangs");
}

TEST(LastWords, AReasonIsReadAtOnce) {
  const auto store = c10::make_intrusive<SlowStore>();
  put(*store, "ended/0", "");  // rank 0 lives, and lost rank 1
  EXPECT_FALSE(LastWords(store, 1, 2).leave("the GPU is out of memory"));
  put(*store, "read/1", "");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(LastWords(store, 0, 2).ask(), "rank 1 ended: the GPU is out of memory");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

/// All refuse for one reason: rank 0 says it.
TEST(LastWords, WhatRank0SaysTooNeedNotBeSaidAgain) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  bool said_by_first = true;
  std::thread first([&] { said_by_first = LastWords(store, 0, 3).leave("no such data"); });
  EXPECT_TRUE(LastWords(store, 1, 3).leave("no such data"));
  EXPECT_FALSE(LastWords(store, 2, 3).leave("rank 2's disk is full"));
  first.join();
  EXPECT_FALSE(said_by_first);
}

TEST(LastWords, ALauncherSpeaksForOneThatWasKilled) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  leave_last_words_of(1, "killed by signal 9 (SIGKILL)", *store);
  put(*store, "read/1", "");
  EXPECT_EQ(LastWords(store, 0, 2).ask(), "rank 1 ended: killed by signal 9 (SIGKILL)");
}

/// It said why, and then a library aborted it while it ended.
TEST(LastWords, WhatItSaidItselfIsNotReplacedByTheLaunchers) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  put(*store, "ended/0", "");  // rank 0 lives, and lost rank 1
  LastWords(store, 1, 2).leave("the GPU is out of memory");
  leave_last_words_of(1, "killed by signal 6 (SIGABRT)", *store);
  EXPECT_EQ(LastWords(store, 0, 2).ask(), "rank 1 ended: the GPU is out of memory");
}

TEST(LastWords, ALauncherSpeaksForOneThatHadAskedToo) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  put(*store, "ended/1", "");
  leave_last_words_of(1, "killed by signal 11 (SIGSEGV)", *store);
  put(*store, "read/1", "");
  EXPECT_EQ(LastWords(store, 0, 2).ask(), "rank 1 ended: killed by signal 11 (SIGSEGV)");
}

}  // namespace
}  // namespace octet
