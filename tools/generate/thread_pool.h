// The threads of the generate command. Its own matrix products and the library's calls (through
// their parallel_for hook) share them, so that no two pools compete for the cores.
#pragma once

#include <tilewise/tilewise.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tilewise::generate {

class ThreadPool {
 public:
  // `threads` counts the caller, who works too: threads - 1 are started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(context, i) for every i in [0, tasks) and returns after all. One caller at a time,
  // and no call from inside a task.
  void run(std::int64_t tasks, tw_task task, void* context);

  // The same for a function object body(i).
  template <class Body>
  void for_each(std::int64_t tasks, Body body) {
    run(
        tasks, [](void* opaque, std::int64_t i) { (*static_cast<Body*>(opaque))(i); }, &body);
  }

  // Has the type of the library's hook; `user` is the pool.
  static void parallel_for(void* user, std::int64_t tasks, tw_task task, void* context);

 private:
  struct Job {
    std::int64_t first, tasks;
    tw_task task;
    void* context;
  };
  void run_batch(const Job& job);
  void work();
  void worker_loop();
  void wait_for_tasks();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> stop_{false};
  // Number of the job in the upper half, its next task in the lower: a worker that comes late
  // cannot take a task of one job for a task of another, and nobody waits for a worker that took
  // none.
  std::atomic<std::uint64_t> ticket_{0};
  std::atomic<std::int64_t> done_{0};  // finished tasks of the job
  // The job. Written only while the ticket is closed.
  std::atomic<std::int64_t> first_{0};
  std::atomic<std::int64_t> tasks_{0};
  std::atomic<tw_task> task_{nullptr};
  std::atomic<void*> context_{nullptr};
};

}  // namespace tilewise::generate
