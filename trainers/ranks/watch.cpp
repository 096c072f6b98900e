#include "trainers/ranks/watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <exception>
#include <utility>

#include "src/common/start_thread.h"

namespace octet {
namespace {

constexpr const char* kWhoIsLost = "lost";
constexpr const char* kNoStep =
    "no step ended in {} s: a GPU waits for another's, or steps, or their pictures, take that long. Where several runs "
    "share GPUs their exchanges may wait for each other: run one at a time; else take a smaller batch_size";

constexpr const char* kWatching = "a thread that watches the other ranks";
constexpr const char* kCure = "raise that limit";

std::string beats_of(int rank) { return fmt::format("beats/{}", rank); }

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

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
  // The first may hang in a store that answers no more: the other thread goes on until it ended.
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
  } catch (const std::exception&) {  // the store is gone: listen() sees that no more rounds are made
    while (rest()) {
    }
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    rounds_ = -1;
  }
  ending_.notify_all();
}

/// Someone is lost: all say the same.
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
  if (rank_ == 0) {  // with whom the store may go: the others read it in their next round
    rest();
    rest();
  }
  tell(who);
  return true;
}

void Watch::look_at_beats() {
  if (!store_->check(keys_)) return;  // not all have begun
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

/// Until the next round; false: there is none.
bool Watch::rest() {
  std::unique_lock<std::mutex> lock(mutex_);
  return !ending_.wait_for(lock, patience_.beat, [this] { return ends_; });
}

void Watch::tell(const std::string& who) {
  if (!told_.exchange(true)) lost_(who);
}

}  // namespace octet
