// What a rank that ends early leaves for the others in the store through which they met, so that they can say who it
// was, and why.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

namespace octet {

class LastWords {
 public:
  LastWords(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size) {}

  /// This rank ends by itself. Rank 0, with whom the store goes, waits until the others know. Whether it was rank 0
  /// that said the very same: then once is enough.
  bool leave(const std::string& reason);

  /// This rank lost others: "rank 1 ended: out of memory", "rank 1 ended without a word, or hangs". Every
  /// rank that lives asks, too: who says nothing in kUntilSilent is gone.
  std::string ask();

 private:
  static constexpr std::chrono::milliseconds kUntilSilent{4000};

  void tell_that_read();
  void wait_for_readers(const std::vector<int>& silent);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, size_;
};

/// What a launcher knows of a rank that could not say it itself: "killed by signal 9 (SIGKILL)". Where it could, its
/// own words stay. `store`: that of the ranks, which may be gone.
void leave_last_words_of(int rank, const std::string& reason, c10d::Store& store);

}  // namespace octet
