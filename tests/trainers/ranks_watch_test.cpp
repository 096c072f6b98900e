// SPDX-License-Identifier: Apache-2.0
#include "trainers/parallel/lost_ranks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trainers/parallel/environment.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Watch::Patience kShort{.beat = std::chrono::milliseconds(50), .beats = 20};  // the machine may be busy
const auto kPatience = kShort.beats * kShort.beat;

/// Ranks as watches of one process, each with a connection of its own to the store that rank 0 holds.
class Watched : public ::testing::Test {
 protected:
  explicit Watched(int size = 3) : words_(static_cast<size_t>(size)) {
    const int port = free_local_port();
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(port);
    options.waitWorkers = false;
    for (int rank = 0; rank < size; ++rank) {
      options.isServer = rank == 0;
      if (rank == 0) options.masterListenFd = listen_at("127.0.0.1", port);
      if (rank != 0) options.masterListenFd.reset();
      stores_.push_back(c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options));
      watches_.push_back(std::make_unique<Watch>(
          *stores_.back(), "rank 0", rank, size, [this, rank](const std::string& who) { hear(rank, who); }, kShort));
    }
  }
  Watch& watch(int rank) { return *watches_[static_cast<size_t>(rank)]; }
  void end(int rank) { watches_[static_cast<size_t>(rank)].reset(); }
  std::string words(int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return words_[static_cast<size_t>(rank)];
  }
  std::string words_within(int rank, Clock::duration time) {
    for (const auto until = Clock::now() + time; Clock::now() < until && words(rank).empty();)
      std::this_thread::sleep_for(kShort.beat / 5);
    return words(rank);
  }

  std::vector<c10::intrusive_ptr<c10d::Store>> stores_;

 private:
  void hear(int rank, const std::string& who) {
    const std::lock_guard<std::mutex> lock(mutex_);
    words_[static_cast<size_t>(rank)] += who;
  }

  std::mutex mutex_;
  std::vector<std::string> words_;
  std::vector<std::unique_ptr<Watch>> watches_;
};

TEST_F(Watched, NobodyIsAccusedWhileAllLive) {
  std::this_thread::sleep_for(3 * kPatience);
  for (const int rank : {0, 1, 2}) EXPECT_EQ(words(rank), "");
}

TEST_F(Watched, OneThatLivesAndMakesNoStepSaysSo) {
  watch(1).due_within(2 * kPatience);
  EXPECT_EQ(words_within(1, kPatience), "");
  watch(1).due_within(2 * kPatience);  // a step ended
  EXPECT_EQ(words_within(1, kPatience * 3 / 2), "");
  EXPECT_NE(words_within(1, 4 * kPatience).find("no step ended in 2 s: a GPU waits"), std::string::npos);
  watch(2).due_within(kPatience / 2);
  watch(2).nothing_due();
  EXPECT_EQ(words_within(2, kPatience), "");
}

TEST_F(Watched, OneWithoutASignOfLifeIsNamedByAllOthers) {
  std::this_thread::sleep_for(kPatience / 2);
  end(1);
  EXPECT_EQ(words_within(0, 4 * kPatience), "rank 1 gives no sign of life: stopped, killed or cut off");
  EXPECT_EQ(words_within(2, kPatience), "rank 1 gives no sign of life: stopped, killed or cut off");
  EXPECT_EQ(words(1), "");
}

TEST_F(Watched, Rank0WithoutASignOfLifeThoughTheStoreAnswers) {
  end(0);
  for (const int rank : {1, 2})
    EXPECT_EQ(words_within(rank, 4 * kPatience), "rank 0 gives no sign of life: stopped, killed or cut off");
}

TEST_F(Watched, AStoreThatAnswersNoMoreIsItsHoldersEnd) {
  end(0);
  stores_[0].reset();
  for (const int rank : {1, 2})
    EXPECT_EQ(words_within(rank, 4 * kPatience), "rank 0 gives no sign of life: stopped, killed or cut off");
}

}  // namespace
}  // namespace octet
