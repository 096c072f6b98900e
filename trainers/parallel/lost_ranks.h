// SPDX-License-Identifier: Apache-2.0
// How ranks learn that one of them ended or hangs. A rank that ends leaves its last words; a watch notices a process
// that is stopped or gone. Both use the store through which the ranks met.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace octet {

/// What a rank that ends early leaves in the store, so that the others can say which rank it was, and why it ended.
class LastWords {
 public:
  LastWords(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size) {}

  /// Call it when this rank ends by itself. Rank 0, whose end closes the store, waits until the others have read.
  /// Returns true if rank 0 left exactly this reason, too: then it need not be printed twice.
  bool leave(const std::string& reason);

  /// Call it when this rank lost others. Returns who ended and why: "rank 1 ended: out of memory", "rank 1 ended
  /// without a word, or hangs". Every rank that lives asks, too; one that leaves nothing within kUntilSilent is gone.
  std::string ask();

 private:
  static constexpr std::chrono::milliseconds kUntilSilent{4000};

  void tell_that_read();
  void wait_for_readers(const std::vector<int>& silent);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, size_;
};

/// Leaves what a launcher knows about a rank that could not say it itself: "killed by signal 9 (SIGKILL)". A rank's own
/// words stay. store: that of the ranks, which may be gone.
void leave_last_words_of(int rank, const std::string& reason, c10d::Store& store);

/// Watches the other ranks' processes. Each second a thread of its own tells the others that this process lives and
/// checks that they do. It works even while the training thread waits for a GPU that waits for another rank, a wait
/// that nothing else ends.
class Watch {
 public:
  /// Counted in beats of this process, not in seconds: a process that was suspended together with all others must not
  /// report them.
  struct Patience {
    std::chrono::milliseconds beat{1000};
    int beats = 10;
  };
  /// Is told in a sentence who is lost. Called once, from a thread of the watch; the training thread may never return.
  using Lost = std::function<void(const std::string& who)>;

  /// store: the ranks' store, to which the watch opens a connection of its own. holder: whose process holds the store,
  /// "rank 0" or the launcher.
  Watch(c10d::Store& store, const std::string& holder, int rank, int size, Lost lost, Patience patience);
  ~Watch();  ///< stops beating

  /// Calls `lost` unless this or nothing_due() is called again within `time`, counted in beats. It covers the case that
  /// all processes live, but each waits for a GPU that waits for another.
  void due_within(std::chrono::milliseconds time);
  void nothing_due() { due_ = kNever; }

 private:
  void end();
  void beat();
  bool look();
  void look_at_beats();
  std::string silent() const;
  void listen();
  bool rest();
  void tell(const std::string& who);

  struct Other {
    int rank = 0, still = 0;     // still: rounds since its beat changed
    std::vector<uint8_t> beats;  // its value in the store
  };

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string holder_;
  const int rank_;
  const Lost lost_;
  const Patience patience_;
  std::vector<Other> others_;  // rank 0 watches all ranks, all others watch rank 0
  std::vector<std::string> keys_;
  static constexpr long kNever = std::numeric_limits<long>::max();
  std::atomic<long> rounds_{0}, due_{kNever}, due_seconds_{0};
  std::atomic<bool> told_{false};
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread beating_, listening_;  // the second notices when the store no longer answers the first
};

}  // namespace octet
