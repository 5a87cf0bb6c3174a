// The thread pool and the hook: every item exactly once, on any mix of callers, nested calls and
// thread counts, before and after a fork. Run under ThreadSanitizer too.
#include "cpu/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace tilewise::cpu {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

// How often each of `items` was visited; plain ints, so that a second visitor would be a race.
std::vector<int> visits(const Parallel& parallel, std::int64_t items) {
  std::vector<int> count(static_cast<std::size_t>(items), 0);
  for_each_item(parallel, items, [&](std::int64_t worker, std::int64_t i) {
    if (worker < 0 || worker >= parallel.workers) ADD_FAILURE() << "worker " << worker;
    ++count[static_cast<std::size_t>(i)];
  });
  return count;
}

TEST(Parallel, VisitsEveryItemOnceForAnyNumberOfThreads) {
  for (const std::int32_t threads : {1, 2, 3, 8, 31}) {
    const Parallel parallel = make_parallel(nullptr, nullptr, threads);
    EXPECT_EQ(parallel.workers, threads);
    for (const std::int64_t items : {0, 1, 2, 3, 7, 100, 10000}) {
      EXPECT_THAT(visits(parallel, items), testing::Each(1)) << threads << " threads, " << items;
    }
  }
}

TEST(Parallel, HasAtLeastOneWorkerAndABound) {
  EXPECT_GE(make_parallel(nullptr, nullptr, 0).workers, 1);
  EXPECT_GE(make_parallel(nullptr, nullptr, -5).workers, 1);
  EXPECT_EQ(make_parallel(nullptr, nullptr, INT32_MAX).workers, 1024);
}

TEST(Parallel, RunsOnAsManyThreadsAsAskedFor) {
  // Every task waits until all have started: fewer threads would never get there.
  const Parallel parallel = make_parallel(nullptr, nullptr, 6);
  std::atomic<int> started{0};
  for_each_item(parallel, 6, [&](std::int64_t, std::int64_t) {
    started.fetch_add(1);
    while (started.load() < 6) std::this_thread::yield();
  });
  EXPECT_EQ(started.load(), 6);
}

TEST(Parallel, GivesEveryWorkerItsOwnSlot) {
  const Parallel parallel = make_parallel(nullptr, nullptr, 4);
  std::vector<std::int64_t> sums(4,
                                 0);  // written without atomics: two threads in one slot would race
  for_each_item(parallel, 5000, [&](std::int64_t worker, std::int64_t i) {
    sums[static_cast<std::size_t>(worker)] += i;
  });
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::int64_t{0}), 5000 * 4999 / 2);
}

TEST(Parallel, TakesMoreTasksThanThreads) {
  const Parallel parallel = make_parallel(nullptr, nullptr, 2);
  std::vector<int> count(3000, 0);
  parallel.parallel_for(
      parallel.user, 3000,
      [](void* context, std::int64_t i) {
        ++(*static_cast<std::vector<int>*>(context))[static_cast<std::size_t>(i)];
      },
      &count);
  EXPECT_THAT(count, testing::Each(1));
}

TEST(Parallel, ServesManyCallersAtOnce) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  callers.reserve(8);
  for (int c = 0; c < 8; ++c) {
    callers.emplace_back([&wrong, c] {
      const Parallel parallel = make_parallel(nullptr, nullptr, 1 + c % 4);
      for (int round = 0; round < 200; ++round) {
        for (const int n : visits(parallel, 1 + (c * 7 + round) % 50)) wrong += n != 1;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Parallel, MayBeNested) {
  const Parallel parallel = make_parallel(nullptr, nullptr, 4);
  std::atomic<int> leaves{0};
  for_each_item(parallel, 10, [&](std::int64_t, std::int64_t) {
    for_each_item(parallel, 10, [&](std::int64_t, std::int64_t) {
      for_each_item(parallel, 10, [&](std::int64_t, std::int64_t) { leaves.fetch_add(1); });
    });
  });
  EXPECT_EQ(leaves.load(), 1000);
}

TEST(Parallel, WakesWorkersThatSleep) {
  const Parallel parallel = make_parallel(nullptr, nullptr, 3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> started{0};
    for_each_item(parallel, 3, [&](std::int64_t, std::int64_t) {
      started.fetch_add(1);
      while (started.load() < 3) std::this_thread::yield();
    });
    EXPECT_EQ(started.load(), 3);
  }
}

struct Hook {
  std::vector<std::int64_t> calls;  // tasks of each
  std::set<std::thread::id> threads;

  // Backwards and on one thread: as unlike the pool as the contract allows.
  static void run(void* user, std::int64_t tasks, Task task, void* context) {
    Hook& hook = *static_cast<Hook*>(user);
    hook.calls.push_back(tasks);
    for (std::int64_t i = tasks - 1; i >= 0; --i) task(context, i);
  }
};

TEST(Parallel, UsesTheHookAndNothingElse) {
  Hook hook;
  const Parallel parallel = make_parallel(&Hook::run, &hook, 5);
  std::vector<int> count(100, 0);
  for_each_item(parallel, 100, [&](std::int64_t, std::int64_t i) {
    hook.threads.insert(std::this_thread::get_id());
    ++count[static_cast<std::size_t>(i)];
  });
  EXPECT_THAT(count, testing::Each(1));
  EXPECT_THAT(hook.calls, testing::ElementsAre(5));
  EXPECT_THAT(hook.threads, testing::ElementsAre(std::this_thread::get_id()));
}

TEST(Parallel, AsksTheHookForNoMoreTasksThanItems) {
  Hook hook;
  for_each_item(make_parallel(&Hook::run, &hook, 5), 3, [](std::int64_t, std::int64_t) {});
  for_each_item(make_parallel(&Hook::run, &hook, 5), 1, [](std::int64_t, std::int64_t) {});
  EXPECT_THAT(hook.calls, testing::ElementsAre(3));  // one item needs nobody's help
}

TEST(Parallel, WorksInAForkedChild) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not follow threads into a child";
  const Parallel parallel = make_parallel(nullptr, nullptr, 4);
  visits(parallel, 100);  // the parent has threads now; the child will have none
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    std::atomic<int> started{0};
    for_each_item(parallel, 4, [&](std::int64_t, std::int64_t) {
      started.fetch_add(1);
      while (started.load() < 4) std::this_thread::yield();
    });
    _exit(started.load() == 4 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  EXPECT_THAT(visits(parallel, 100), testing::Each(1));
}

TEST(Parallel, LetsAProcessExitWithItsWorkersAsleep) {
  // A process of its own (threadsafe style), which ends with static destructors, unlike _exit.
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        alarm(20);
        visits(make_parallel(nullptr, nullptr, 4), 100);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tilewise::cpu
