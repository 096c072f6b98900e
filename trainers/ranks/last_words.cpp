#include "trainers/ranks/last_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <thread>
#include <vector>

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{10};

std::string ended(int rank) { return fmt::format("ended/{}", rank); }
std::string has_read(int rank) { return fmt::format("read/{}", rank); }
std::string words(const std::string& reason) { return "!" + reason; }  // a rank that only asks leaves none

void put(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

/// Nothing: it is not there in time, or the store is gone. Looked for at least once, however late it is: a wait of the
/// time that is left would be over before a store of a busy host has answered.
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
    const std::string all = words(reason);  // instead of nothing, or of "" when it only asked
    store.compareSet(ended(rank), {}, std::vector<uint8_t>(all.begin(), all.end()));
  } catch (const std::exception&) {  // the others will say that it ended without a word
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
    put(*store_, ended(rank_), "");
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
    put(*store_, has_read(rank_), "");
  } catch (const std::exception&) {  // rank 0 waits a little longer, then
  }
}

/// Not for those that are gone.
void LastWords::wait_for_readers(const std::vector<int>& silent) {
  if (rank_ != 0) return;
  const auto until = Clock::now() + kUntilSilent;
  for (int rank = 1; rank < size_ && Clock::now() < until; ++rank)
    if (std::find(silent.begin(), silent.end(), rank) == silent.end()) take(*store_, has_read(rank), until);
}

}  // namespace octet
