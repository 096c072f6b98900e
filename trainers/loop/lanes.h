// Two streams of a GPU, for kernels that do not need each other: one that begins takes the multiprocessors that the
// last blocks of the other's leave idle. On the CPU all is done as it is called.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <optional>
#include <vector>

namespace octet {

class Lanes {
 public:
  explicit Lanes(at::Device device);
  /// Joins where that was not done. What throws on the way frees memory that lane 1 still uses, or ends the recording
  /// of a CUDA graph, which cannot end while a stream has not come back.
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  void fork();  ///< lane 0 is the current stream from now on, lane 1 begins after what is queued there
  void join();  ///< what is queued in lane 0 from now on begins after all that is queued in lane 1

  /// What is queued in it keeps its order, whatever the lanes.
  class Row {
   private:
    friend class Lanes;
    std::optional<c10::Event> last_;
  };

  /// What `work` queues goes to lane `number` mod 2, behind what is in the row.
  template <class Work>
  void queue(int number, Row& row, const Work& work) {
    c10::OptionalStreamGuard guard;
    enter(number, row, guard);
    work();
    leave(number, row);
  }

 private:
  void enter(int number, const Row& row, c10::OptionalStreamGuard& guard) const;
  void leave(int number, Row& row) const;

  const at::Device device_;
  std::vector<c10::Stream> streams_;  // between fork() and join(); none on the CPU
};

}  // namespace octet
