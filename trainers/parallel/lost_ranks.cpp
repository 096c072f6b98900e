// SPDX-License-Identifier: Apache-2.0
#include "trainers/parallel/lost_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/threads.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{10};

constexpr const char* kWhoIsLost = "lost";
constexpr const char* kWatching = "a thread that watches the other ranks";
constexpr const char* kCure = "raise that limit";
constexpr const char* kNoStep =
    "no step ended in {} s: a GPU waits for another's, or steps, or their images, take that long. Where several runs "
    "share GPUs their exchanges may wait for each other: run one at a time; else take a smaller batch_size";

std::string beats_of(int rank) { return fmt::format("beats/{}", rank); }
std::string ended(int rank) { return fmt::format("ended/{}", rank); }
std::string has_read(int rank) { return fmt::format("read/{}", rank); }
std::string words(const std::string& reason) { return "!" + reason; }  // a rank that only asks leaves ""

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

/// Returns the value of `key`, or nothing if it is not there in time or the store is gone. Looks at least once, however
/// late it is: waiting for the remaining time could end before the store of a busy host answers.
std::optional<std::string> take(c10d::Store& store, const std::string& key, Clock::time_point until) {
  try {
    while (!store.check({key})) {
      if (Clock::now() >= until) return std::nullopt;
      std::this_thread::sleep_for(kBetweenLooks);
    }
    const std::vector<uint8_t> text = store.get(key);
    return std::string(text.begin(), text.end());
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

void leave_last_words_of(int rank, const std::string& reason, c10d::Store& store) {
  try {
    store.compareSet(ended(rank), {}, bytes(words(reason)));  // replaces a missing value or "", not other words
  } catch (const std::exception&) {                           // the others will report that it ended without a word
  }
}

bool LastWords::leave(const std::string& reason) {
  leave_last_words_of(rank_, reason, *store_);
  wait_for_readers({});
  if (rank_ == 0) return false;
  const std::optional<std::string> of_first = take(*store_, ended(0), Clock::now() + kUntilSilent);
  tell_that_read();
  return of_first == words(reason);
}

std::string LastWords::ask() {
  try {
    store_->set(ended(rank_), bytes(""));
  } catch (const std::exception&) {
    return "rank 0, or the torchrun through which they met, is gone";
  }
  const auto until = Clock::now() + kUntilSilent;
  std::string reason;
  std::vector<int> silent;
  for (int rank = 0; rank < size_; ++rank) {
    const std::optional<std::string> words = take(*store_, ended(rank), until);
    if (!words)
      silent.push_back(rank);
    else if (words->starts_with('!') && reason.empty())
      reason = fmt::format("rank {} ended: {}", rank, words->substr(1));
  }
  if (static_cast<int>(silent.size()) == size_) return "rank 0, or the torchrun through which they met, is gone";
  tell_that_read();
  wait_for_readers(silent);
  if (!reason.empty()) return reason;
  if (!silent.empty()) return fmt::format("rank {} ended without a word, or hangs", fmt::join(silent, ", rank "));
  return "the connection between them broke";
}

void LastWords::tell_that_read() {
  try {
    store_->set(has_read(rank_), bytes(""));
  } catch (const std::exception&) {  // rank 0 then waits a little longer
  }
}

/// Rank 0 waits until the ranks that are not `silent` have read.
void LastWords::wait_for_readers(const std::vector<int>& silent) {
  if (rank_ != 0) return;
  const auto until = Clock::now() + kUntilSilent;
  for (int rank = 1; rank < size_ && Clock::now() < until; ++rank)
    if (std::find(silent.begin(), silent.end(), rank) == silent.end()) take(*store_, has_read(rank), until);
}

Watch::Watch(c10d::Store& store, const std::string& holder, int rank, int size, Lost lost, Patience patience)
    : store_(store.clone()), holder_(holder), rank_(rank), lost_(std::move(lost)), patience_(patience) {
  for (int other = 0; other < size; ++other) {
    if (other == rank || (rank != 0 && other != 0)) continue;
    others_.push_back({.rank = other});
    keys_.push_back(beats_of(other));
  }
  try {
    beating_ = start_thread([this] { beat(); }, kWatching, kCure);
    listening_ = start_thread([this] { listen(); }, kWatching, kCure);
  } catch (...) {
    end();
    throw;
  }
}

Watch::~Watch() { end(); }

void Watch::end() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  ending_.notify_all();
  // The first thread may hang in a store that no longer answers; the second goes on until the first has ended.
  for (std::thread* thread : {&beating_, &listening_})
    if (thread->joinable()) thread->join();
}

void Watch::due_within(std::chrono::milliseconds time) {
  due_seconds_ = std::chrono::duration_cast<std::chrono::seconds>(time).count();
  due_ = rounds_ + time / patience_.beat;
}

void Watch::beat() {
  try {
    do {
      store_->set(beats_of(rank_), bytes(std::to_string(rounds_)));
      if (look()) break;
      if (rounds_ >= due_) tell(fmt::format(kNoStep, due_seconds_.load()));
      ++rounds_;
    } while (rest());
  } catch (const std::exception&) {  // the store is gone: listen() notices that rounds_ stands still
    while (rest()) {
    }
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    rounds_ = -1;
  }
  ending_.notify_all();
}

/// Returns true if someone is lost. The store tells who, so that all ranks report the same.
bool Watch::look() {
  if (store_->check({kWhoIsLost})) {
    const std::vector<uint8_t> who = store_->get(kWhoIsLost);
    tell(std::string(who.begin(), who.end()));
    return true;
  }
  look_at_beats();
  const std::string who = silent();
  if (who.empty()) return false;
  store_->set(kWhoIsLost, bytes(who));
  if (rank_ == 0) {  // its end may close the store: wait until the others have read this in their next round
    rest();
    rest();
  }
  tell(who);
  return true;
}

void Watch::look_at_beats() {
  if (!store_->check(keys_)) return;  // not all ranks have started
  const std::vector<std::vector<uint8_t>> now = store_->multiGet(keys_);
  for (size_t i = 0; i < others_.size(); ++i) {
    Other& other = others_[i];
    other.still = now[i] == other.beats ? other.still + 1 : 0;
    other.beats = now[i];
  }
}

std::string Watch::silent() const {
  std::vector<int> ranks;
  for (const Other& other : others_)
    if (other.still >= patience_.beats) ranks.push_back(other.rank);
  if (ranks.empty()) return "";
  return fmt::format("rank {} gives no sign of life: stopped, killed or cut off", fmt::join(ranks, ", rank "));
}

void Watch::listen() {
  long seen = 0;
  int still = 0;
  for (std::unique_lock<std::mutex> lock(mutex_); rounds_ >= 0;) {
    ending_.wait_for(lock, patience_.beat, [this] { return rounds_ < 0; });
    still = rounds_ == seen ? still + 1 : 0;
    seen = rounds_;
    if (still == patience_.beats && !told_) {
      lock.unlock();
      tell(fmt::format("{} gives no sign of life: stopped, killed or cut off", holder_));
      lock.lock();
    }
  }
}

/// Waits for the next round. Returns false if there is none.
bool Watch::rest() {
  std::unique_lock<std::mutex> lock(mutex_);
  return !ending_.wait_for(lock, patience_.beat, [this] { return ends_; });
}

void Watch::tell(const std::string& who) {
  if (!told_.exchange(true)) lost_(who);
}

}  // namespace octet
