// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one test: each meets the others over 127.0.0.1 as a process would.
#pragma once

#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "trainers/parallel/environment.h"
#include "trainers/parallel/ranks.h"

namespace octet::testing_trainers {

inline RankEnvironment local_rank(int rank, int size, int port) {
  return {.rank = rank, .size = size, .local_rank = rank, .local_size = size, .address = "127.0.0.1", .port = port};
}

/// Runs `work` as each of `size` ranks; returns what each threw, "" for nothing.
inline std::vector<std::string> run_ranks(
    int size, const std::function<void(Ranks&)>& work,
    const std::function<std::string(int)>& agreement = [](int) { return "the same"; },
    const Ranks::Faults& faults = Ranks::Faults()) {
  // LibTorch keeps a record of exchanges for each process, whose groups add themselves without a lock
  // (FlightRecorderDetail.hpp, all_pg_status_): with ranks that are threads of one it crashed once in a thousand runs.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  const int port = free_local_port();
  std::vector<std::string> thrown(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Ranks ranks(local_rank(rank, size, port), at::kCPU, agreement(rank), faults);
        work(ranks);
      } catch (const std::exception& error) {
        thrown[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

inline const std::vector<std::string> kNobodyThrew(2);

}  // namespace octet::testing_trainers
