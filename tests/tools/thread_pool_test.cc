// The command's thread pool: every task once, for any number of threads and tasks, job after job.
#include "generate/thread_pool.h"

#include <gtest/gtest.h>

#include <thread>

namespace tilewise::generate {
namespace {

TEST(GenerateThreadPool, RunsEveryTaskOnceJobAfterJob) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int job = 0; job < 300; ++job) {
      const std::int64_t tasks = job % 23;
      std::vector<int> runs(static_cast<std::size_t>(tasks), 0);
      pool.for_each(tasks, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
      EXPECT_EQ(runs, std::vector<int>(static_cast<std::size_t>(tasks), 1));
    }
  }
}

TEST(GenerateThreadPool, WakesWorkersThatHaveGoneToSleep) {
  ThreadPool pool(3);
  for (int job = 0; job < 3; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> sum{0};
    pool.for_each(100, [&](std::int64_t i) { sum += static_cast<int>(i); });
    EXPECT_EQ(sum, 4950);
  }
}

TEST(GenerateThreadPool, ServesAsTheLibrarysHook) {
  ThreadPool pool(2);
  std::atomic<std::int64_t> sum{0};
  ThreadPool::parallel_for(
      &pool, 10,
      [](void* context, std::int64_t i) { *static_cast<std::atomic<std::int64_t>*>(context) += i; },
      &sum);
  EXPECT_EQ(sum, 45);
}

}  // namespace
}  // namespace tilewise::generate
