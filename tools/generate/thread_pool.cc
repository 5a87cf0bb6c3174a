// See thread_pool.h. A decoded token needs about two hundred short jobs, microseconds apart:
// workers look for the next one for a while before they sleep.
#include "generate/thread_pool.h"

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Of the OpenMP runtime under oneDNN; declared here because clang comes without omp.h.
extern "C" void omp_set_num_threads(int threads);

namespace tilewise::generate {
namespace {

// Longer than the gaps between the jobs of one step, shorter than anybody would notice as load.
constexpr std::chrono::microseconds kSpin{100};

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  // oneDNN would start OpenMP threads of its own inside every task; this holds for the calling
  // thread only.
  omp_set_num_threads(1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { worker_loop(); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  {
    const std::lock_guard lock(mutex_);
    job_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::int64_t tasks, tw_task task, void* context) {
  if (tasks <= 0) return;
  if (tasks == 1 || workers_.empty()) {
    for (std::int64_t i = 0; i < tasks; ++i) task(context, i);
    return;
  }
  tasks_ = tasks;
  task_ = task;
  context_ = context;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<std::int64_t>(workers_.size()), std::memory_order_relaxed);
  {
    // Under the lock, so that no worker falls asleep between its last look and the signal.
    const std::lock_guard lock(mutex_);
    job_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  work();
  while (busy_.load(std::memory_order_acquire) != 0) pause_briefly();
}

void ThreadPool::parallel_for(void* user, std::int64_t tasks, tw_task task, void* context) {
  static_cast<ThreadPool*>(user)->run(tasks, task, context);
}

void ThreadPool::work() {
  for (;;) {
    const std::int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= tasks_) return;
    task_(context_, i);
  }
}

void ThreadPool::worker_loop() {
  omp_set_num_threads(1);
  std::uint64_t seen = 0;
  for (;;) {
    seen = wait_for_job(seen);
    if (stop_) return;
    work();
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

std::uint64_t ThreadPool::wait_for_job(std::uint64_t seen) {
  const auto give_up = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      const std::uint64_t job = job_.load(std::memory_order_acquire);
      if (job != seen) return job;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < give_up);
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return job_.load(std::memory_order_acquire) != seen; });
  return job_.load(std::memory_order_acquire);
}

}  // namespace tilewise::generate
