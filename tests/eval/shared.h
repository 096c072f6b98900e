// SPDX-License-Identifier: Apache-2.0
// Several processes that share an evaluation set, here threads.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <bit>
#include <cstdint>
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

/// Expects the scores of one process that shared an evaluation to be those of one that had all images, to the last bit.
inline void expect_equal(const Evaluation& shared, const Evaluation& alone) {
  EXPECT_EQ(shared.images, alone.images);
  EXPECT_EQ(shared.predictions, alone.predictions);
  EXPECT_EQ(shared.right, alone.right);
  EXPECT_EQ(shared.overlaps, alone.overlaps);
  EXPECT_EQ(shared.confusion, alone.confusion);
  for (double Evaluation::*score : {&Evaluation::top1, &Evaluation::top5, &Evaluation::mean_iou, &Evaluation::ap,
                                    &Evaluation::ap50, &Evaluation::loss})
    EXPECT_EQ(std::bit_cast<uint64_t>(shared.*score), std::bit_cast<uint64_t>(alone.*score));
}

}  // namespace octet::testing
