// See thread_pool.h. A decoded token needs about two hundred short jobs, microseconds apart:
// workers look for the next one for a while before they sleep.
#include "generate/thread_pool.h"

#include <algorithm>
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

// Lower half of a ticket that gives out no tasks.
constexpr std::uint64_t kClosed = 0xFFFFFFFF;
constexpr std::int64_t kMaxBatch = 1 << 30;
// Looks at a value that another thread will change, before the core is offered to others.
constexpr int kLooks = 256;

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
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::int64_t tasks, tw_task task, void* context) {
  if (tasks <= 1 || workers_.empty()) {
    for (std::int64_t i = 0; i < tasks; ++i) task(context, i);
    return;
  }
  for (std::int64_t first = 0; first < tasks; first += kMaxBatch) {
    run_batch({first, std::min(kMaxBatch, tasks - first), task, context});
  }
}

void ThreadPool::run_batch(const Job& job) {
  const std::uint64_t ticket = (ticket_.load() | kClosed) + 1;  // number of the next job, task 0
  ticket_.store(ticket | kClosed);
  first_.store(job.first);
  tasks_.store(job.tasks);
  task_.store(job.task);
  context_.store(job.context);
  done_.store(0);
  {
    // Under the lock, so that no worker falls asleep between its last look and the signal.
    const std::lock_guard lock(mutex_);
    ticket_.store(ticket);
  }
  wake_.notify_all();
  work();
  for (int looks = 0; done_.load(std::memory_order_acquire) != job.tasks; ++looks) {
    looks < kLooks ? pause_briefly() : std::this_thread::yield();
  }
}

void ThreadPool::parallel_for(void* user, std::int64_t tasks, tw_task task, void* context) {
  static_cast<ThreadPool*>(user)->run(tasks, task, context);
}

// Takes tasks until the job has none left. The job is read before the ticket is drawn: if the draw
// succeeds, the ticket was still that job's, and so was what has been read.
void ThreadPool::work() {
  std::uint64_t ticket = ticket_.load();
  for (;;) {
    const tw_task task = task_.load();
    void* const context = context_.load();
    const std::int64_t first = first_.load();
    const auto index = static_cast<std::int64_t>(ticket & kClosed);
    if (index >= tasks_.load()) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1)) continue;
    task(context, first + index);
    done_.fetch_add(1, std::memory_order_release);
    ticket = ticket_.load();
  }
}

void ThreadPool::worker_loop() {
  omp_set_num_threads(1);
  while (!stop_) {
    work();
    wait_for_tasks();
  }
}

// Returns when a job has tasks to give out, or on stop.
void ThreadPool::wait_for_tasks() {
  const auto is_over = [&] {
    return stop_ || static_cast<std::int64_t>(ticket_.load() & kClosed) < tasks_.load();
  };
  const auto give_up = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int look = 0; look < kLooks; ++look) {
      if (is_over()) return;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < give_up);
  std::unique_lock lock(mutex_);
  wake_.wait(lock, is_over);
}

}  // namespace tilewise::generate
