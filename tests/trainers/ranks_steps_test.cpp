// SPDX-License-Identifier: Apache-2.0
// Ranks::Steps, and where the loop calls it: whose steps end no more is told, whose steps are slow is not.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/trainers/comparable.h"
#include "tests/trainers/ranks.h"

namespace octet {
namespace {

using testing_trainers::Comparable;
using testing_trainers::Folder;
using testing_trainers::kNobodyThrew;
using testing_trainers::run_ranks;
using testing_trainers::short_recipe;

void sleep(int seconds) { std::this_thread::sleep_for(std::chrono::seconds(seconds)); }

/// What ranks would have said when they ended their processes, with this limit of seconds.
class Told {
 public:
  explicit Told(int longest_step)
      : faults_{.end = [this](const std::string& why) { hear(why); }, .longest_step = longest_step} {}
  const Ranks::Faults& faults() const { return faults_; }
  std::set<std::string> words() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return words_;
  }

 private:
  void hear(const std::string& why) {
    const std::lock_guard<std::mutex> lock(mutex_);
    words_.insert(why.substr(0, why.find(": a GPU waits")));
  }
  const Ranks::Faults faults_;
  std::mutex mutex_;
  std::set<std::string> words_;
};

std::string same(int) { return "the same"; }

TEST(RanksSteps, AreDueUntilTheyEndOrNoneIs) {
  Told told(3);
  const auto work = [](Ranks& ranks) {
    Ranks::Steps steps(&ranks, ranks.rank() == 4 ? 1 : 0);
    steps.begins();
    if (ranks.rank() == 1) steps.none_due();
    if (ranks.rank() == 2) {
      Ranks::Steps others(&ranks, 0);  // goes at once
    }
    for (int second = 0; second < 8; ++second) {
      sleep(1);
      if (ranks.rank() == 3) steps.ended();
    }
    ranks.meet();
  };
  EXPECT_EQ(run_ranks(5, work, same, told.faults()), std::vector<std::string>(5));
  EXPECT_EQ(told.words(), std::set<std::string>{"rank 0 of 5 stops: no step ended in 3 s"});  // the last: a first step
}

/// Two ranks train four steps an epoch; `stop` is asked in each, when it was launched, `epoch_done` after each epoch.
std::set<std::string> told_by_training(int longest_step, const std::function<bool(long asked)>& stop,
                                       const std::function<void()>& epoch_done) {
  const Folder folder("ranks_steps");
  Told told(longest_step);
  OptimizerRecipe recipe = short_recipe();
  recipe.epochs = 2;
  Comparable first(recipe, folder.path() + "/state.safetensors", {}), second(recipe, first.phase.checkpoint, {});
  const auto work = [&](Ranks& ranks) {
    Comparable& mine = ranks.first() ? first : second;
    mine.phase.ranks = &ranks;
    mine.phase.stop = [&, asked = 0L]() mutable { return stop(++asked); };
    mine.phase.epoch_done = [&](const EpochResult&) { epoch_done(); };
    mine.run();
  };
  EXPECT_EQ(run_ranks(2, work, same, told.faults()), kNobodyThrew);
  return told.words();
}

std::set<std::string> both(const std::string& words) {
  return {"rank 0 of 2 stops: " + words, "rank 1 of 2 stops: " + words};
}

TEST(RanksSteps, OfATrainingThatHangIsTold) {
  const auto hang_in = [](long step, int seconds) {
    return told_by_training(
        1,
        [=](long asked) {
          if (asked == step) sleep(seconds);
          return false;
        },
        [] {});
  };
  EXPECT_EQ(hang_in(1, 7), both("no step ended in 5 s"));
  EXPECT_EQ(hang_in(6, 3), both("no step ended in 1 s"));
}

TEST(RanksSteps, OfATrainingThatValidatesForLongAreNotDue) {
  EXPECT_EQ(told_by_training(
                2, [](long) { return false; }, [] { sleep(5); }),
            std::set<std::string>());
}

}  // namespace
}  // namespace octet
