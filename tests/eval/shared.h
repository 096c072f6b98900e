// SPDX-License-Identifier: Apache-2.0
// Several processes that share an evaluation set, here threads.
#pragma once

#include <barrier>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "src/eval/evaluate.h"

namespace octet::testing {

/// Returns what each of `size` processes that share the set returns.
template <class Result>
std::vector<Result> each_process(int size, const std::function<Result(const EvaluationSet&)>& work,
                                 const EvaluationSet& whole) {
  std::vector<Sharing::Bytes> sent(static_cast<size_t>(size));
  std::barrier all(size);
  std::vector<Result> results(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      EvaluationSet set = whole;
      set.sharing = std::make_shared<Sharing>(Sharing{rank, size, [&, rank](const Sharing::Bytes& mine) {
                                                        sent[static_cast<size_t>(rank)] = mine;
                                                        all.arrive_and_wait();
                                                        std::vector<Sharing::Bytes> received = sent;
                                                        all.arrive_and_wait();
                                                        return received;
                                                      }});
      results[static_cast<size_t>(rank)] = work(set);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace octet::testing
