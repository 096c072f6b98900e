// Which rank's process has stopped, or whether all wait. A thread of its own tells the others each second that this
// process lives, and looks whether they do: also while the training's thread waits for a GPU that waits for them, from
// which nothing wakes it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace octet {

class Watch {
 public:
  /// Counted in beats of this process, not in seconds: one that slept with all the others accuses nobody.
  struct Patience {
    std::chrono::milliseconds beat{1000};
    int beats = 10;
  };
  /// Told who is lost, in a sentence; called once, from a thread of the watch's, while the training's may never return.
  using Lost = std::function<void(const std::string& who)>;

  /// `store`: through which the ranks met; the watch takes a connection of its own. `holder`: whose process holds it,
  /// "rank 0" or the launcher.
  Watch(c10d::Store& store, const std::string& holder, int rank, int size, Lost lost, Patience patience);
  ~Watch();  ///< beats no more

  /// `lost` unless it is called again, or nothing_due(), within `time`, counted in beats: all processes live, and each
  /// waits for a GPU that waits for another.
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
    std::vector<uint8_t> beats;  // as it stands in the store
  };

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string holder_;
  const int rank_;
  const Lost lost_;
  const Patience patience_;
  std::vector<Other> others_;  // rank 0 watches all, all watch rank 0
  std::vector<std::string> keys_;
  static constexpr long kNever = std::numeric_limits<long>::max();
  std::atomic<long> rounds_{0}, due_{kNever}, due_seconds_{0};
  std::atomic<bool> told_{false};
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread beating_, listening_;  // the second notices that the store answers the first no more
};

}  // namespace octet
